"""Templates as zips: what an upload may contain, and how a version is stored."""

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.templating.library import MAX_FILE_BYTES, MAX_FILES, Files, digest

MAX_PACKAGE_BYTES: Final = 5 * 1024 * 1024
MAX_UNPACKED_BYTES: Final = 10 * 1024 * 1024
MAX_RATIO: Final = 200  # of the unpacked bytes to the packed ones
_ENCRYPTED: Final = 0x1
_METHODS: Final = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_HIDDEN: Final = re.compile(r"(^|/)\.[^./]|^__MACOSX/")
_STEP: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
_FILE_NAME: Final = re.compile(rf"{_STEP}(?:/{_STEP}){{0,4}}", re.ASCII)


def version_of(name: str, files: Files) -> str:
    """Return the version of a template with these files: the same on every machine."""
    return digest(f"kesin template {name}", files)


def read_package(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip without hidden ones, and without a folder around all of them."""
    if len(data) > MAX_PACKAGE_BYTES:
        raise _refusal("the zip is larger than %(most)s bytes", most=MAX_PACKAGE_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            files = dict(_read_entries(package))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
        raise _refusal("the body is not a complete zip") from None
    tops = {file.partition("/")[0] for file in files}
    if len(tops) == 1 and "template.html" not in files:
        files = {file.partition("/")[2]: content for file, content in files.items()}
    return files


def write_package(files: Files) -> bytes:
    """Build the zip of these files, always with the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as package:
        for file in sorted(files):
            package.writestr(zipfile.ZipInfo(file), files[file])
    return packed.getvalue()


def _read_entries(package: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    listed = package.infolist()
    entries = [each for each in listed if not (each.is_dir() or _HIDDEN.search(each.filename))]
    if len(entries) > MAX_FILES:
        raise _refusal("the zip has more than %(most)s files", most=MAX_FILES)
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise _refusal("the files together exceed %(most)s bytes", most=MAX_UNPACKED_BYTES)
    seen: set[str] = set()
    for entry in entries:
        name, most = entry.filename, min(MAX_FILE_BYTES, MAX_RATIO * max(entry.compress_size, 1))
        kind = stat.S_IFMT(entry.external_attr >> 16)
        for why, wrong in (
            ("its name is not a path of letters, digits and '._-'", not _FILE_NAME.fullmatch(name)),
            ("another entry has this name", name.lower() in seen),
            ("it is a link or a device", kind not in {0, stat.S_IFREG}),
            ("it is encrypted", entry.flag_bits & _ENCRYPTED),
            ("it is not compressed with deflate", entry.compress_type not in _METHODS),
            ("it is too large, or compressed too much", entry.file_size > most),
        ):
            if wrong:
                shown = name[:100] if name.isprintable() else "?"
                raise _refusal("%(file)s: %(problem)s", file=shown, problem=Message(why))
        seen.add(name.lower())
        yield name, package.read(entry)


def _refusal(why: str, **values: Any) -> Invalid:
    return Invalid(why, code="BAD_TEMPLATE_ZIP", **values)
