"""Many PDFs to one file: a zip, or one PDF with an outline.

PDFs come one at a time and go to the disk at once: what is in memory does not grow with the batch.
The same PDFs give the same bytes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import pikepdf

MAX_OUTPUT_BYTES: Final = 200 * 1024 * 1024
GROUP: Final = 50  # PDFs open at the same time: all of them would be too many files
GROUP_BYTES: Final = 64 * 1024 * 1024
LONGEST_TITLE: Final = 120
_MADE_AT: Final = (2000, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_READABLE: Final = 0o644 << 16


class TooMuch(ValueError):
    """The file would be larger than is kept."""


class Unreadable(ValueError):
    """It is no PDF that could be taken apart."""


class Assembly(Protocol):
    """A file in the making."""

    media_type: str
    ending: str

    def add(self, name: str, pdf: bytes) -> None:
        """The next PDF; raises TooMuch, or Unreadable and leaves it out."""
        ...

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The file, with these small ones beside where it has room for such; raises TooMuch."""
        ...


def assembly(output: str, folder: Path, most: int = MAX_OUTPUT_BYTES) -> Assembly:
    """A zip or a merged PDF, to be made in this empty folder."""
    return MergedPdf(folder, most) if output == "merged" else Zip(folder, most)


class Zip:
    """Entries in the order they come, not packed again: PDFs are packed already."""

    media_type = "application/zip"
    ending = "zip"

    def __init__(self, folder: Path, most: int = MAX_OUTPUT_BYTES) -> None:
        self._path = folder / "out.zip"
        self._most = most
        self._zip = zipfile.ZipFile(self._path, "w")

    def add(self, name: str, pdf: bytes) -> None:
        """One more entry."""
        self._write(name, pdf)

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The whole zip."""
        for name, data in notes.items():
            self._write(name, data)
        self._zip.close()
        if self._path.stat().st_size > self._most:  # the table of contents came on top
            raise TooMuch(_too_much(self._most))
        return self._path

    def _write(self, name: str, data: bytes) -> None:
        at = self._zip.fp.tell() if self._zip.fp else 0
        if at + len(data) > self._most:
            self._zip.close()
            raise TooMuch(_too_much(self._most))
        entry = zipfile.ZipInfo(name, _MADE_AT)
        entry.create_system = _UNIX
        entry.external_attr = _READABLE
        self._zip.writestr(entry, data)


class MergedPdf:
    """Pages one after the other, and an entry in the outline for each PDF.

    PDFs are merged in groups, and the groups at the end. Their pages are taken over as they are;
    outlines and names of places inside of them are not.
    """

    media_type = "application/pdf"
    ending = "pdf"

    def __init__(self, folder: Path, most: int = MAX_OUTPUT_BYTES) -> None:
        self._pages = 0
        self._folder = folder
        self._most = most
        self._waiting_bytes = 0
        self._grouped_bytes = 0
        self._titles: list[tuple[str, int]] = []  # and the page each begins at
        self._waiting: list[Path] = []
        self._groups: list[Path] = []

    def add(self, name: str, pdf: bytes) -> None:
        """One more PDF after the last page."""
        path = self._folder / f"part-{len(self._titles)}.pdf"
        path.write_bytes(pdf)
        try:
            with pikepdf.open(path) as document:
                pages = len(document.pages)
        except pikepdf.PdfError as problem:
            raise Unreadable(str(problem)) from problem
        self._titles.append((name.removesuffix(".pdf")[:LONGEST_TITLE], self._pages))
        self._pages += pages
        self._waiting.append(path)
        self._waiting_bytes += len(pdf)
        if len(self._waiting) == GROUP or self._waiting_bytes > GROUP_BYTES:
            self._close_group()

    def finished(self, notes: Mapping[str, bytes]) -> Path:
        """The whole PDF; a PDF has no place for notes."""
        del notes
        self._close_group()
        path = self._folder / "out.pdf"
        _merge(self._groups, path, self._titles)
        if path.stat().st_size > self._most:
            raise TooMuch(_too_much(self._most))
        return path

    def _close_group(self) -> None:
        if not self._waiting:
            return
        group = self._folder / f"group-{len(self._groups)}.pdf"
        _merge(self._waiting, group)
        for path in self._waiting:
            path.unlink()
        self._waiting, self._waiting_bytes = [], 0
        self._groups.append(group)
        self._grouped_bytes += group.stat().st_size
        if self._grouped_bytes > self._most * 1.1:  # together they become a little smaller
            raise TooMuch(_too_much(self._most))


def _merge(parts: list[Path], path: Path, titles: list[tuple[str, int]] | None = None) -> None:
    """Sources stay open until all is written: their streams are copied then."""
    opened: list[pikepdf.Pdf] = []
    try:
        with pikepdf.new() as merged:
            for part in parts:
                opened.append(pikepdf.open(part))
                merged.pages.extend(opened[-1].pages)
            if titles:
                with merged.open_outline() as outline:
                    outline.root.extend(pikepdf.OutlineItem(name, at) for name, at in titles)
                merged.Root.PageMode = pikepdf.Name.UseOutlines
            merged.save(
                path,
                deterministic_id=True,
                object_stream_mode=pikepdf.ObjectStreamMode.generate,
            )
    finally:
        for one in opened:
            one.close()


def _too_much(most: int) -> str:
    return (
        f"the file would have more than {most // (1024 * 1024)} MiB: send the rows in several "
        "batches, or fetch each PDF by itself"
    )
