"""Zips of templates: what is read, what is refused with its name, and how a version is stored."""

import io
import stat
import zipfile
from collections.abc import Callable

import pytest

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.templating import versions
from kesin.workloads.pdf.templating.versions import read_package, version_of, write_package

Write = Callable[[zipfile.ZipFile], object]


def packed(*writes: Write) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("template.html", "x")
        for write in writes:
            write(archive)
    return data.getvalue()


def file(name: str, data: bytes = b"y", kind: int = 0, method: int = zipfile.ZIP_DEFLATED) -> Write:
    info = zipfile.ZipInfo(name)
    info.external_attr = kind << 16
    return lambda archive: archive.writestr(info, data, method)


def patched(data: bytes, at: int, value: int) -> bytes:
    """Change a field of the last entry of the directory: 8 its flags, 24 its size."""
    start = data.rindex(b"PK\x01\x02")
    return data[: start + at] + value.to_bytes(4, "little") + data[start + at + 4 :]


def refusal(data: bytes) -> str:
    with pytest.raises(Invalid) as refused:
        read_package(data)
    assert refused.value.code == "BAD_TEMPLATE_ZIP"
    return refused.value.message


def test_files_keep_their_paths_and_hidden_ones_are_left_out():
    data = packed(file("img/logo.png"), file(".git/config"), file("__MACOSX/._x"), file("img/"))
    assert read_package(data) == {"template.html": b"x", "img/logo.png": b"y"}


def test_a_name_that_is_no_plain_path_is_refused():
    for name, shown in (
        ("../evil.html", "../evil.html"), ("/etc/passwd", "/etc/passwd"), ("a//b", "a//b"),
        ("a/../../b", "a/../../b"), ("..", ".."), ("C:\\x", "C:/x"), ("a\tb", "?"),
        ("ş.html", "ş.html"), ("x" * 101, "x" * 100), ("a/b/c/d/e/f", "a/b/c/d/e/f"),
    ):  # fmt: skip
        message = refusal(packed(file(name.replace("\\", "/"))))
        assert message == f"{shown}: its name is not a path of letters, digits and '._-'"


def test_links_devices_and_repeated_names_are_refused():
    for kind in (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFDIR):
        assert "a: it is a link or a device" in refusal(packed(file("a", b"/etc/passwd", kind)))
    assert read_package(packed(file("a", kind=stat.S_IFREG | 0o644)))
    assert "A: another entry has this name" in refusal(packed(file("a"), file("A")))


def test_sizes_numbers_and_compression_have_limits(monkeypatch):
    bomb = packed(file("zeros.png", bytes(1_000_000)))
    assert len(bomb) < 2_000
    assert "zeros.png: it is too large, or compressed too much" in refusal(bomb)
    large = file("large.png", bytes(2 * 1024 * 1024 + 1), method=zipfile.ZIP_STORED)
    assert "large.png: it is too large" in refusal(packed(large))
    assert "more than 200 files" in refusal(packed(*(file(f"f{n}") for n in range(200))))
    monkeypatch.setattr(versions, "MAX_UNPACKED_BYTES", 10)
    assert "the files together exceed 10 bytes" in refusal(packed(file("a", b"y" * 10)))
    monkeypatch.setattr(versions, "MAX_PACKAGE_BYTES", 10)
    assert "the zip is larger than 10 bytes" in refusal(packed())
    method = file("a", method=zipfile.ZIP_BZIP2)
    monkeypatch.undo()
    assert "a: it is not compressed with deflate" in refusal(packed(method))


def test_a_directory_that_lies_is_refused():
    honest = packed(file("a", b"y" * 100, method=zipfile.ZIP_STORED))
    assert "a: it is encrypted" in refusal(patched(honest, 8, 0x1))
    for size in (1, 99, 1_000_000):
        assert refusal(patched(honest, 24, size))
    for cut in (1, 30, len(honest) // 2, len(honest) - 1):
        assert refusal(honest[:cut]) == "the body is not a complete zip"
        assert refusal(honest[cut:]) == "the body is not a complete zip"
    spoilt = bytearray(honest)
    spoilt[honest.index(b"yyyy")] ^= 1
    assert refusal(bytes(spoilt)) == "the body is not a complete zip"


def test_the_version_and_the_stored_bytes_follow_from_the_files():
    files = {"template.html": b"x", "a/b.png": b"y"}
    assert write_package(files) == write_package(dict(reversed(files.items())))
    assert read_package(write_package(files)) == files
    versions = {
        version_of("card", files), version_of("note", files),
        version_of("card", {"template.html": b"x", "a/b.png": b"z"}),
        version_of("card", {"template.html": b"x", "a/c.png": b"y"}),
    }  # fmt: skip
    assert len(versions) == 4
