"""Buckets that are pairs of lengths, the digits of two operands: as `addition` writes them, and reports read them."""

PAIRED = "addition"
"""The task whose buckets they are."""
LONG = 1_000_000
"""A bucket's code has two decimal places for each operand; above this, for operands of 100 digits or more, three."""


def bucket_of(i: int, j: int) -> int:
    """The bucket of operands with i and j digits."""
    return 100 * i + j if max(i, j) < 100 else LONG + 1000 * i + j


def digits_of(bucket: int) -> tuple[int, int]:
    """How many digits the two operands of a bucket have: the inverse of `bucket_of`."""
    return divmod(bucket, 100) if bucket < LONG else divmod(bucket - LONG, 1000)


def is_pair(bucket: int | None, length: int) -> bool:
    """Whether the bucket of a row is the code of a pair whose longer operand has `length` digits.

    Rows of `addition` with more than two operands have their length as bucket, which never is one.
    """
    if bucket is None:
        return False
    i, j = digits_of(bucket)
    return min(i, j) >= 1 and max(i, j) == length < 1000 and bucket_of(i, j) == bucket
