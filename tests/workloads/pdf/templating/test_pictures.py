"""Pictures: too many pixels are noticed in the header, before anything is decoded."""

import base64
import io
import struct
from urllib.parse import quote

import pytest
from PIL import Image

from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.templating.filters import image
from kesin.workloads.pdf.templating.pictures import PictureLimits, is_readable_picture
from kesin.workloads.pdf.templating.variables import VariableSchema
from tests.attacks.bombs import png
from tests.tables import table

LIMITS = PictureLimits(picture=25_000_000, document=60_000_000)
BOMB = png(20_000, pixels=False)
BOMB_DATA = BOMB.partition(",")[2]
SVG = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{BOMB}"/></svg>'


def picture(kind: str, side: int = 20) -> str:
    written = io.BytesIO()
    Image.new("1" if kind == "png" else "L", (side, 10)).save(written, kind)
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"


def in_base64(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def refusal(text: str) -> str:
    with pytest.raises(RenderFailed) as refused:
        LIMITS.check(text)
    assert refused.value.code == "PICTURES_TOO_LARGE"
    return refused.value.message


def test_a_picture_of_each_kind_is_measured():
    for kind in ("png", "jpeg", "gif", "webp"):
        assert is_readable_picture(picture(kind)), kind
        assert image(picture(kind)) == picture(kind), kind
        counted: dict[bytes, int] = {}
        LIMITS.check(f'<img src="{picture(kind)}"><img src="{picture(kind)}">', counted)
        assert list(counted.values()) == [200], kind


@table(
    "page",
    [
        f'<img src="{BOMB}">',
        f"<img src={BOMB}>",
        f"<style>p {{ background: url({picture('png')}), url({BOMB}) }}</style>",
        f'<img srcset="{picture("png")} 1x, {BOMB} 2x">',
        f'<img src="{BOMB.replace("data:", "DA&#x54;A&colon;")}">',
        f'<img src="{BOMB.replace("data:", "da&#10;ta:")}">',
        f"<style>p {{ background: url('{BOMB.replace('data:', chr(92) + '64 ata:')}') }}</style>",
        f'<img src="data:;base64,{BOMB_DATA}">',
        f'<img src="data:font/woff2;base64,{BOMB_DATA}">',
        f'<img src="data:image/png;base64,{" ".join(BOMB_DATA)}">',
        f'<img src="data:image/png,{quote(base64.b64decode(BOMB_DATA))}">',
        SVG,
        f'<img src="{in_base64("image/svg+xml", SVG.encode())}">',
        f'<img src="{in_base64("image/svg+xml", SVG.encode("utf-16"))}">',
        f'<img src="data:image/svg+xml,{quote(SVG)}">',
    ],
)
def test_a_large_picture_is_found_however_it_is_spelled(page):
    assert "more than the allowed 25 million pixels" in refusal(f"<html>{page}</html>")


def test_different_pictures_are_counted_together():
    sides = (4_600, 4_700, 4_800)
    pages = [f'<img src="{png(side, pixels=False)}">' for side in sides]
    LIMITS.check("".join(pages[:2] * 2))
    assert "the document have more than the allowed 60 million pixels" in refusal("".join(pages))


def test_a_gif_is_as_large_as_its_first_frame():
    frame = struct.pack("<BHHHHB", 0x2C, 0, 0, 20_000, 20_000, 0)
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    assert "million pixels" in refusal(in_base64("image/gif", screen + frame + b"\x02\0;"))


def test_what_cannot_be_measured_is_refused():
    for data, reason in (
        (b"\x89PNG\r\n\x1a\nbroken", "cannot be read"),
        (b"BM" + bytes(30), "must be PNG"),
        (b"\0\0\1\0" + bytes(30), "must be PNG"),
        (b"\0\0\0\x20ftypavif" + bytes(30), "must be PNG"),
        (b'<!DOCTYPE svg [<!ENTITY a "da">]><svg>&a;ta:</svg>', "cannot be measured"),
    ):
        assert reason in refusal(f'<img src="{in_base64("image/png", data)}">'), data


def test_what_no_browser_decodes_is_left_to_the_engine():
    LIMITS.check('<img src="data:image/png;base64,AAAA"> data: a, b <img src="data:,x">')


def test_what_is_no_readable_picture_is_no_picture():
    for text in ("data:image/png;base64,AAAA", "data:image/png;base64,A", "data:image/svg+xml;base64,AAAA", ""):
        assert not is_readable_picture(text), text


def test_a_variable_with_a_large_picture_is_named():
    schema = VariableSchema({"properties": {"logo": {"type": "string", "format": "picture"}}})
    assert schema.find_problems({"logo": picture("png")}) == []
    assert [each.path for each in schema.find_problems({"logo": 7})] == ["/logo"]
    [(path, message)] = LIMITS.find_problems({"logo": picture("png"), "a/b": [{"c": BOMB}]})
    assert path == "/a~1b/0/c"
    assert "25 million" in message
