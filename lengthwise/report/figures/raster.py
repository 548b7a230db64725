"""Many accuracies in little room: an image with a pixel for each, once in light colours and once in dark ones."""

import base64
import struct
import zlib

import numpy as np

from lengthwise.report.figures.drawing import element
from lengthwise.report.figures.palette import DARK_SCALE, SCALE, shade

LEVELS = 100
"""Shades that are distinguished, less one: an image has 256 colours at most."""


def raster(values_HW: np.ndarray, x: float, y: float, width: float, height: float) -> str:
    """The first row above; what is not a number is transparent. A page in the dark shows the other image, see
    `page.css`; a file of its own is on white paper.

    Pixels must stay squares: browsers know the style, what draws PNG files and older programs the attribute.
    """
    return "".join(
        element(
            "image", class_=name, x=x, y=y, width=width, height=height, display=display, preserveAspectRatio="none",
            image_rendering="optimizeSpeed", style="image-rendering:pixelated",
            href=f"data:image/png;base64,{base64.b64encode(png(values_HW, scale)).decode()}",
        )
        for name, scale, display in (("in-light", SCALE, None), ("in-dark", DARK_SCALE, "none"))
    )  # fmt: skip


def png(values_HW: np.ndarray, scale: tuple[str, ...]) -> bytes:
    """A PNG file (W3C, third edition): one byte a pixel, the number of its colour; colour 0 is transparent."""
    known_HW = ~np.isnan(values_HW)
    levels_HW = np.where(known_HW, np.rint(np.nan_to_num(values_HW) * LEVELS), -1).astype(int)
    used = sorted({-1, *levels_HW.flat})
    indices_HW = np.searchsorted(used, levels_HW).astype(np.uint8)
    colours = "".join(["000000", *(shade(level / LEVELS, scale)[1:] for level in used[1:])])
    height, width = values_HW.shape
    lines = b"".join(b"\0" + line.tobytes() for line in indices_HW)  # 0: the line is not filtered
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits a pixel, 3: numbers of colours
        (b"PLTE", bytes.fromhex(colours)),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
