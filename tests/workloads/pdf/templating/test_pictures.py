"""Pictures in variables: too many pixels are noticed in the header, before anything is decoded."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from kesin.workloads.pdf.templating.filters import Unprintable, image
from kesin.workloads.pdf.templating.pictures import MAX_PIXELS, is_printable_picture
from kesin.workloads.pdf.templating.variables import VariableSchema
from tests.attacks.bombs import png


def picture(kind: str) -> str:
    written = io.BytesIO()
    Image.new("1" if kind == "png" else "L", (20, 10)).save(written, kind)
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_a_picture_of_each_kind_is_read(kind):
    assert is_printable_picture(picture(kind))
    assert image(picture(kind)) == picture(kind)


@pytest.mark.parametrize("side", [7_000, 20_000])
def test_a_picture_with_too_many_pixels_is_refused(side):
    assert side * side > MAX_PIXELS
    too_large = png(side, pixels=False)
    assert not is_printable_picture(too_large)
    with pytest.raises(Unprintable, match="at most"):
        image(too_large)


@pytest.mark.parametrize(
    "text",
    ["data:image/png;base64,AAAA", "data:image/png;base64,A", "data:image/svg+xml;base64,AAAA", ""],
)
def test_what_is_no_readable_picture_is_no_picture(text):
    assert not is_printable_picture(text)


def test_the_format_of_a_schema_names_the_field():
    schema = VariableSchema({"properties": {"logo": {"type": "string", "format": "picture"}}})
    assert schema.find_problems({"logo": picture("png")}) == []
    assert [each.path for each in schema.find_problems({"logo": 7})] == ["/logo"]
    [problem] = schema.find_problems({"logo": png(7_000, pixels=False)})
    assert (problem.path, problem.rule) == ("/logo", "format")
    assert f"at most {MAX_PIXELS} pixels" in problem.message
