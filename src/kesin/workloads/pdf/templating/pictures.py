"""Limits the pixels of pictures by their headers: a few bytes may decode to gigabytes."""

import base64
import binascii
import html
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import PICTURES_TOO_LARGE, RenderFailed

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_VARIABLE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,([A-Za-z0-9+/]+={0,2})")
_MEASURED: Final = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8|RIFF.{4}WEBP", re.DOTALL)
_KINDS: Final = {b"\x89": "png", b"\xff": "jpeg", b"G": "gif", b"R": "webp"}
_REFUSED: Final = re.compile(  # BMP, ICO, CUR, AVIF, JPEG XL: what else a browser decodes
    rb"BM.{4}\0{4}|\0\0[\1\2]\0|.{4}ftyp|\xff\x0a|\0\0\0\x0cJXL ", re.DOTALL
)
_CONTENT: Final = re.compile(r"[^\"'<>()]*")
_CSS_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{1,6})[ \n\t]?|(.))")
_SUSPICIOUS: Final = re.compile(r"data|[&\\\t\r\n]", re.IGNORECASE)
_MAX_DEPTH: Final = 8  # of URIs in pictures in URIs


class PictureLimits(NamedTuple):
    """The most pixels of one picture, and of all different pictures of a document."""

    picture: int = 25_000_000
    document: int = 60_000_000

    def check(self, text: str, counted: dict[bytes, int] | None = None) -> None:
        """Raise RenderFailed if pictures in data: URIs, with those ``counted``, are too large."""
        self._count(_embedded(text), {} if counted is None else counted)

    def check_file(self, data: bytes, counted: dict[bytes, int]) -> None:
        """Raise RenderFailed if a picture, or those in an SVG or a style, are too large."""
        pictures = (data,) if self.measure(data) else _embedded(data.decode("latin-1"))
        self._count(pictures, counted)

    def _count(self, pictures: Iterable[bytes], counted: dict[bytes, int]) -> None:
        """Add the pictures to those counted, unless they are refused."""
        added: dict[bytes, int] = {}
        for data in pictures:
            digest = sha256(data).digest()
            if digest not in counted and digest not in added:
                added[digest] = self.measure(data)
        pixels = sum((*counted.values(), *added.values()))
        _require_at_most(pixels, self.document, "the pictures in the document have")
        counted.update(added)

    def measure(self, data: bytes) -> int:
        """Return the pixels of a file, 0 for what is no picture; raises RenderFailed."""
        if _REFUSED.match(data):
            raise RenderFailed(PICTURES_TOO_LARGE, "an image must be PNG, JPEG, GIF, WebP or SVG")
        if not _MEASURED.match(data):
            return 0
        pixels = pixel_count(data)
        if pixels is None:
            raise RenderFailed(PICTURES_TOO_LARGE, "the size of a picture cannot be read")
        _require_at_most(pixels, self.picture, "a picture has")
        return pixels

    def find_problems(self, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the first variable whose picture is too large: its path, and the problem."""
        counted: dict[bytes, int] = {}
        for path, text in find_texts(_SUSPICIOUS.search, variables):
            try:
                self.check(text, counted)
            except RenderFailed as problem:
                yield path, problem.message
                return


def picture_data(text: str) -> bytes | None:
    """Return the bytes of a picture in a data: URI; None for other texts, and for SVG."""
    match = _VARIABLE.fullmatch(text)
    if match is None:
        return None
    try:
        return base64.b64decode(match[1])
    except binascii.Error:
        return None


def picture_type(data: bytes) -> str:
    """Return the media type of a picture that was measured."""
    return f"image/{_KINDS[data[:1]]}"


def pixel_count(data: bytes) -> int | None:
    """Return how many pixels a picture claims to have; None if its header cannot be read."""
    from PIL import Image  # pikepdf and WeasyPrint bring it; it loads slowly

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # nothing is decoded here
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            return picture.width * picture.height  # of an animation, one frame is printed
    except Image.DecompressionBombError:
        return 1 << 62
    except Exception:  # noqa: BLE001 - the library raises anything on a broken file
        return None


def is_readable_picture(text: str) -> bool:
    data = picture_data(text)
    return data is not None and pixel_count(data) is not None


def _require_at_most(pixels: int, most: int, subject: str) -> None:
    if pixels > most:
        why = "%(what)s more than the allowed %(most)s million pixels"
        allowed = f"{most / 1_000_000:g}"
        raise RenderFailed(PICTURES_TOO_LARGE, why, what=Message(subject), most=allowed)


def _embedded(text: str, depth: int = 0) -> Iterator[bytes]:
    """Yield the content of every data: URI, however HTML or CSS spells it, and of those inside."""
    if not _SUSPICIOUS.search(text):
        return
    if depth and (depth > _MAX_DEPTH or "<!entity" in text.lower()):
        why = Message("a picture contains others that cannot be measured")
        raise RenderFailed(PICTURES_TOO_LARGE, why)
    unescaped = html.unescape(text)
    for spelling in {text, unescaped, _CSS_ESCAPE.sub(_css_character, unescaped)}:
        joined = re.sub(r"[\t\r\n]", "", spelling)  # as browsers do
        for uri in re.split("data:", joined, flags=re.IGNORECASE)[1:]:
            kind, _, rest = uri.partition(",")
            data = _decode(kind.strip().lower(), _CONTENT.match(rest)[0])  # type: ignore[index]
            yield data
            if not _MEASURED.match(data):  # an SVG, perhaps in UTF-16
                yield from _embedded(data.replace(b"\0", b"").decode("latin-1"), depth + 1)


def _decode(kind: str, content: str) -> bytes:
    """Decode the content of a data: URI as far as it can be; a font is only recognised."""
    if not kind.endswith("base64"):
        return unquote_to_bytes(content)
    letters = re.sub(rb"[^A-Za-z0-9+/]", b"", unquote_to_bytes(content))
    if kind.startswith("font/"):
        letters = letters[:64]  # enough to recognise a format
    whole = letters[: len(letters) - (len(letters) % 4 == 1)]
    return base64.b64decode(whole + b"=" * (-len(whole) % 4))


def _css_character(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[2]
    number = int(escape[1], 16)
    return chr(number) if 0 < number <= sys.maxunicode else "\ufffd"


def find_texts(matches: Callable[[str], object], value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of these variables that matches, with its JSON Pointer."""
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        is_text = isinstance(item, str)
        if matches(item) if is_text else isinstance(item, Mapping | list | tuple):
            step = str(key).replace("~", "~0").replace("/", "~1")
            if is_text:
                yield f"{path}/{step}", item
            else:
                yield from find_texts(matches, item, f"{path}/{step}")
