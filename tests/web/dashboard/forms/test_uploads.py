"""Forms with a file in them, as browsers send them and as others might."""

import pytest

from kesin.foundation.problems import Problem
from kesin.web.dashboard.forms.uploads import parse_upload
from tests.tables import table

TYPE = "multipart/form-data; boundary=----xyz"


def body(*parts: str, end: str = "------xyz--\r\n") -> bytes:
    return ("".join(f"------xyz\r\n{one}\r\n" for one in parts) + end).encode()


def field(name: str, value: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'


def file(name: str, value: str) -> str:
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    return f"{head}\r\nContent-Type: text/csv\r\n\r\n{value}"


def test_fields_and_a_file_are_told_apart():
    upload = parse_upload(body(field("order_id", "İ-1"), file("Işık.csv", "a;b\r\n1;2\r\n")), TYPE)
    assert upload.fields == {"order_id": "İ-1"}
    assert (upload.file_name, upload.data) == ("Işık.csv", b"a;b\r\n1;2\r\n")


def test_a_file_comes_byte_by_byte_as_it_was():
    data = bytes(range(256)) * 3 + b"\r\n--\r\n\r"
    head = b'------xyz\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n'
    assert parse_upload(head + data + b"\r\n------xyz--\r\n", TYPE).data == data


@table(
    ("sent", "kind"),
    [
        (b"", ""),
        (b"", TYPE),
        (b"x=1", "application/x-www-form-urlencoded"),
        (body(field("a", "b"), end=""), TYPE),
        (body(field("a", "b")), "multipart/form-data"),
        (body(field("a", "b")), "multipart/form-data; boundary=" + "x" * 200),
        (body(*[field("a", "b")] * 70), TYPE),
    ],
)
def test_what_is_no_form_with_a_file_is_refused(sent, kind):
    with pytest.raises(Problem):
        parse_upload(sent, kind)
