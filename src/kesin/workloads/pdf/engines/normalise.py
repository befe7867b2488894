"""Makes PDFs reproducible: what differs between two runs of the same job is replaced.

Chromium writes itself and the time of printing into the information dictionary, and nothing else
that changes. What the document says of itself takes their place: its title and its <meta> elements,
under the names that WeasyPrint reads too. Objects are found through the cross-reference table,
never by searching the whole file: an image may contain any bytes.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.limits import check_pages, check_pdf

PRODUCER: Final = "Kesin"

_INFORMATION: Final = {
    "Title": "title",
    "Author": "author",
    "Subject": "description",
    "Keywords": "keywords",
    "Creator": "generator",
}
_DATES: Final = {"CreationDate": "dcterms.created", "ModDate": "dcterms.modified"}
_TAIL_BYTES: Final = 2048
_ENTRY_BYTES: Final = 20
_START: Final = re.compile(rb"startxref\s+(\d+)\s+%%EOF\s*\Z")
_TABLE: Final = re.compile(rb"xref\s+0 (\d+) ?\r?\n")
_IDS: Final = re.compile(rb"/ID ?\[ ?<([0-9A-Fa-f]+)> ?<([0-9A-Fa-f]+)> ?\]")
_COUNT: Final = re.compile(rb"/Count (\d+)")
_STRINGS: Final = re.compile(rb"\((?:\\.|[^\\()])*+\)", re.DOTALL)
_END: Final = b"\nendobj"  # strings escape a line feed, so this is not inside one
_STREAM: Final = re.compile(rb">>\s*stream\r?\n")
_LENGTH: Final = re.compile(rb"/Length (\d+)")
_NO_TEXT: Final = (b"/Subtype /Image", b"/Length1 ", b"/FunctionType ")  # pictures, fonts, shadings
_MAX_HEAD_BYTES: Final = 4096
MAX_READ_BYTES: Final = 128 * 1024 * 1024  # of decompressed streams


class NotAPdf(ValueError):
    """The file is not a PDF as Chromium writes it."""


class PdfFile:
    """A PDF with a plain cross-reference table."""

    def __init__(self, data: bytes) -> None:
        start = _START.search(data, max(len(data) - _TAIL_BYTES, 0))
        if not data.startswith(b"%PDF-") or start is None:
            raise NotAPdf("it does not begin or end as a PDF does")
        table = _TABLE.match(data, int(start[1]))
        trailer_at = data.rfind(b"trailer", max(len(data) - _TAIL_BYTES, 0))
        if table is None or trailer_at < 0:
            raise NotAPdf("it has no plain cross-reference table")
        self._data = bytearray(data)
        self._entries_at = table.end()
        self._entries = int(table[1])
        self._trailer_at = trailer_at

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return bytes(self._data)

    def count_pages(self) -> int:
        """Return the page count of the page tree."""
        catalog = self._find_referenced(b"Root", self._trailer())
        tree = self._find_referenced(b"Pages", catalog) if catalog else None
        count = _COUNT.search(self._object(tree)) if tree else None
        if count is None:
            raise NotAPdf("it has no page tree")
        return int(count[1])

    def set_information(self, information: bytes) -> None:
        """Replace the information dictionary; what stands behind it moves."""
        span = self._find_referenced(b"Info", self._trailer())
        if span is None:
            return
        start = self._data.index(b"obj", span[0]) + len(b"obj\n")
        moved = len(information) - (span[1] - start)
        for entry in range(self._entries_at, self._trailer_at - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            offset = int(self._data[entry : entry + 10])
            if offset > start:
                self._data[entry : entry + 10] = b"%010d" % (offset + moved)
        tail = _START.search(self._data, self._trailer_at)
        if tail is not None:
            self._data[tail.start(1) : tail.end(1)] = b"%d" % (int(tail[1]) + moved)
        self._data[start : span[1]] = information
        self._entries_at += moved
        self._trailer_at += moved

    def set_identifier(self) -> None:
        """Set the file identifier to a hash of the contents."""
        ids = _IDS.search(self._data, self._trailer_at)
        if ids is not None:
            for group in (1, 2):
                self._data[ids.start(group) : ids.end(group)] = b"0" * len(ids[group])
            digest = hashlib.sha256(self._data).hexdigest().encode().upper()
            for group in (1, 2):
                length = ids.end(group) - ids.start(group)
                identifier = (digest * (length // len(digest) + 1))[:length]
                self._data[ids.start(group) : ids.end(group)] = identifier

    def objects(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the number, the beginning and the decompressed stream of each object.

        Streams that cannot hold text are empty, and so are those beyond the limit of all.
        """
        left = MAX_READ_BYTES
        for number in range(1, self._entries):
            start = self._offset(number)
            head = bytes(self._data[start : start + _MAX_HEAD_BYTES])
            end, begin, length = head.find(_END), _STREAM.search(head), _LENGTH.search(head)
            head = head if end < 0 else head[:end]
            stream = b""
            if begin and length and (end < 0 or begin.start() < end):
                at, head = start + begin.end(), head[: begin.start()]
                if left and not any(mark in head for mark in _NO_TEXT):
                    stream = bytes(self._data[at : at + int(length[1])])
                    if b"/FlateDecode" in head:
                        stream = zlib.decompressobj().decompress(stream, left)
                    left -= min(len(stream), left)
            yield number, head, stream

    def _trailer(self) -> tuple[int, int]:
        return self._trailer_at, len(self._data)

    def _object(self, span: tuple[int, int]) -> bytes:
        return bytes(self._data[span[0] : span[1]])

    def _find_referenced(self, key: bytes, span: tuple[int, int]) -> tuple[int, int] | None:
        """Find the span of the object that this object references by a key."""
        reference = re.search(rb"/" + key + rb" (\d+) 0 R", _STRINGS.sub(b"", self._object(span)))
        if reference is None or int(reference[1]) >= self._entries:
            return None
        start = self._offset(int(reference[1]))
        end = self._data.find(_END, start)
        if end < 0:
            raise NotAPdf("its cross-reference table points nowhere")
        return start, end

    def _offset(self, number: int) -> int:
        entry = self._entries_at + number * _ENTRY_BYTES
        digits = bytes(self._data[entry : entry + 10])
        if not digits.isdigit():
            raise NotAPdf("its cross-reference table is damaged")
        if not self._data.startswith(b"%d 0 obj" % number, int(digits)):
            raise NotAPdf("its cross-reference table points nowhere")
        return int(digits)


def normalise_pdf(data: bytes, about: Mapping[str, str]) -> tuple[bytes, int]:
    """Return the PDF with what the document says of itself, and its page count.

    ``about`` holds the title and the <meta> elements by name. Checks the limits.
    """
    check_pdf(data)
    try:
        pdf = PdfFile(data)
        pages = pdf.count_pages()
        pdf.set_information(_format_information(about))
        pdf.set_identifier()
    except NotAPdf as problem:
        raise RenderFailed(
            PdfErrorCode.UNKNOWN, Message("no PDF came out: %(problem)s", problem=problem)
        ) from problem
    check_pages(pages)
    return pdf.data, pages


def _format_information(about: Mapping[str, str]) -> bytes:
    texts = {key: about.get(name, "").strip() for key, name in _INFORMATION.items()}
    dates = {key: _format_date(about.get(name, "")) for key, name in _DATES.items()}
    entries = {**texts, "Producer": PRODUCER, **dates}
    return b"<<%s>>" % b"\n".join(
        b"/%s <%s>" % (key.encode(), ("\ufeff" + text).encode("utf-16-be").hex().upper().encode())
        for key, text in entries.items()
        if text
    )


def _format_date(text: str) -> str:
    """Format a date of ISO 8601, with or without a time; what is none is left out."""
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        return ""
    if len(text.strip()) == len("2026-11-16"):
        return f"D:{date:%Y%m%d}"
    zone = f"{date:%z}"
    return f"D:{date:%Y%m%d%H%M%S}" + (f"{zone[:3]}'{zone[3:5]}'" if zone else "")
