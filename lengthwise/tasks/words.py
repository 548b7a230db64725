"""Made-up words, one token each: the symbols of tasks whose content does not matter."""

_SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou"]
MOST = len(_SYLLABLES) ** 2


def words(count: int) -> list[str]:
    """`count` distinct two-syllable words, always the same ones in the same order."""
    if not 1 <= count <= MOST:
        raise ValueError(f"there are 1 to {MOST} made-up words, not {count}")
    # 2657 has no factor in common with 6400, so the walk meets every pair of syllables once, well mixed.
    walk = (i * 2657 % MOST for i in range(count))
    return [_SYLLABLES[j // len(_SYLLABLES)] + _SYLLABLES[j % len(_SYLLABLES)] for j in walk]
