"""The size of pictures in variables, from their headers: a few bytes may decode to gigabytes."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from typing import Final

MAX_PIXELS: Final = 40_000_000  # a sheet of A4 at 600 dpi has 35 million
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_DATA_URI: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,([A-Za-z0-9+/]+={0,2})")


def picture_data(text: str) -> bytes | None:
    """Return the bytes of a picture in a data: URI; None for any other text.

    SVG is rejected, because it can refer to other files.
    """
    match = _DATA_URI.fullmatch(text)
    if match is None:
        return None
    try:
        return base64.b64decode(match[1])
    except binascii.Error:
        return None


def pixel_count(data: bytes) -> int | None:
    """Return how many pixels a picture claims to have; None if its header cannot be read."""
    from PIL import Image  # pikepdf and WeasyPrint bring it; it loads slowly

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # nothing is decoded here
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            return picture.width * picture.height
    except Image.DecompressionBombError:
        return MAX_PIXELS + 1
    except Exception:  # noqa: BLE001 - the library raises anything on a broken file
        return None


def is_printable_picture(text: str) -> bool:
    """Whether a text is a readable picture that is not too large to decode."""
    data = picture_data(text)
    pixels = None if data is None else pixel_count(data)
    return pixels is not None and pixels <= MAX_PIXELS
