"""Memory of a CPU: what one step frees, the next one needs again."""

import ctypes

LARGEST = 2**25
"""Bytes; the C library's own limit for memory that it takes from its heap. Anything larger comes from the system."""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""As <malloc.h> numbers them."""


def keep_freed_memory() -> None:
    """Tells the C library to keep what is freed, for the whole process.

    By default it gives large pieces back to the system at once. To ask for them again, and to have each page cleared
    again, took 3 to 8 % of a small model's step. A C library other than GNU's is left alone.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(MMAP_THRESHOLD, LARGEST)
        change(TRIM_THRESHOLD, 2**31 - 1)
