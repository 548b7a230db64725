"""The tokens of our models as tokenizers of Transformers, which are files that any program of theirs reads."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lengthwise.data.examples import Part
from lengthwise.data.published_tokens import PublishedSpeller
from lengthwise.data.tokens import PieceTokens, SymbolTokens, Tokens
from lengthwise.data.vocabulary import TIE, Vocabulary
from lengthwise.errors import UserError
from lengthwise.hub.spelling_tokenizer import LengthwiseSpellingTokenizer, ids_of, spellings_of
from lengthwise.language import tokenizer as language
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task

SAMPLED, SPREAD = 4, 32
"""Examples of so many lengths by which a tokenizer is checked."""


class LengthwiseTokenizer(PreTrainedTokenizerFast):
    """A closed vocabulary: a word that is not in it is an error, which says the word."""

    def _encode_plus(self, text: Any, *others: Any, **named: Any) -> Any:
        try:
            return super()._encode_plus(text, *others, **named)
        except Exception as error:  # the library raises nothing more precise
            if "WordLevel" not in str(error):
                raise
            unknown = next(filter(self._is_unknown, _words(text)), None)
            if unknown is None:
                raise
        few = ", ".join(repr(symbol.removeprefix(TIE)) for symbol in list(self.get_vocab())[:8])
        raise ValueError(
            f"not in the vocabulary: {unknown!r}; the model knows the {len(self.get_vocab())} words of its task, "
            f"separated by spaces ({few} ...)"
        )

    def _is_unknown(self, word: str) -> bool:
        try:
            self.backend_tokenizer.encode(word, add_special_tokens=False)
        except Exception:  # the library raises nothing more precise
            return True
        return False


def _words(text: Any) -> Iterable[str]:
    """Of a text, or of texts in lists."""
    if isinstance(text, str):
        yield from text.split()
    elif isinstance(text, list | tuple):
        for each in text:
            yield from _words(each)


def task_tokenizer(task: Task, tokens: Tokens, alone: bool = False) -> PreTrainedTokenizerBase:
    """Text of a task to the ids that a model of it was trained on, and back.

    `alone`: of a class that is loaded without this package; then an unknown word is told less readably.
    """
    special: dict[str, Any] = {"padding_side": "left", "clean_up_tokenization_spaces": False}
    special |= {"pad_token": tokens.piece(tokens.pad), "eos_token": tokens.piece(tokens.end)}
    if isinstance(tokens, SymbolTokens) and not tokens.several:
        cls = PreTrainedTokenizerFast if alone else LengthwiseTokenizer
        made: PreTrainedTokenizerBase = cls(tokenizer_object=word_level(tokens.vocabulary), **special)
    elif (isinstance(tokens, PieceTokens) and isinstance(tokens.speller, PublishedSpeller)) or isinstance(
        tokens, SymbolTokens
    ):
        if alone:
            raise UserError("words of this run have several tokens each, in a way that no tokenizer but ours knows")
        made = LengthwiseSpellingTokenizer(spellings=spellings_of(tokens), **special)
    else:
        raise UserError(
            "the tokens of this run are those of a tokenizer's file, which are not exported: use that file with the "
            'weights of the run, or train with data.tokens = "symbols" or "published"'
        )
    _check(made, task, tokens)
    return made


def word_level(vocabulary: Vocabulary) -> Inner:
    """One token for each symbol. A symbol that begins with a tie is written without a space before it: a regular
    expression splits it off again."""
    symbols = vocabulary.symbols
    whole = [symbol for symbol in symbols if not symbol.startswith(TIE)]
    ends = sorted((symbol.removeprefix(TIE) for symbol in symbols if symbol.startswith(TIE)), key=len)
    # Its word for unknown ones is none of the vocabulary, so that they are errors.
    inner = Inner(models.WordLevel({symbol: index for index, symbol in enumerate(symbols)}, unk_token=2 * TIE))
    steps: list[Any] = []
    for end in ends:  # the longest first symbol wins: the shortest end
        # A word that is a symbol as a whole stays one (`Thus,`).
        stays = [each.removesuffix(end) for each in whole if each.endswith(end) and each != end]
        kept = "".join(rf"(?<!^{re.escape(each)}|\s{re.escape(each)})" for each in stays)
        steps.append(normalizers.Replace(Regex(rf"(?<=\S){kept}{re.escape(end)}(?=\s|$)"), f" {TIE}{end}"))
    inner.normalizer = normalizers.Sequence(steps)
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.WordPiece(prefix=TIE, cleanup=False)  # joins what begins with the prefix
    return inner


def language_tokenizer(ours: language.Tokenizer) -> PreTrainedTokenizerFast:
    """A document begins with its own token, as in training; text that spells out a special token is text."""
    inner = Inner.from_str(ours.text())
    inner.post_processor = processors.TemplateProcessing(
        single=f"{language.BEGIN} $A",
        pair=f"{language.BEGIN} $A $B",
        special_tokens=[(language.BEGIN, ours.begin)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=language.PADDING,
        bos_token=language.BEGIN,
        eos_token=language.END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def _check(made: PreTrainedTokenizerBase, task: Task, tokens: Tokens) -> None:
    """Refuses a tokenizer that makes other ids of what the task writes than the model was trained on."""
    for example, text in texts_of(task):
        expected, ids = ids_of(tokens, example), made(text)["input_ids"]
        if ids != expected or made.decode(ids) != text:
            raise UserError(
                f"the tokenizer cannot be exported: it would read {text!r} as {made.convert_ids_to_tokens(ids)}, and "
                f"the model was trained on {tokens.pieces(expected)}"
            )


def texts_of(task: Task, count: int = SAMPLED, lengths: int = SPREAD) -> Iterable[tuple[np.ndarray, str]]:
    """Some examples of lengths of training and tests, prompts and targets apart: ids of symbols, and the text."""
    spans = (task.train_lengths, task.test_lengths)
    buckets = sorted({bucket for span in spans for bucket in task.buckets(Span(span.first, span.last))})
    for bucket in {buckets[i] for i in np.linspace(0, len(buckets) - 1, lengths).astype(int)}:
        examples = task.examples(bucket, count, stream(0, "export", bucket))
        for example in range(len(examples)):
            one = slice(examples.starts[example], examples.starts[example + 1])
            is_target = examples.parts[one] > Part.PROMPT
            for ids in (examples.tokens[one][~is_target], examples.tokens[one][is_target]):
                yield ids, task.vocabulary.decode(ids)
