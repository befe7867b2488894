"""An uploaded PDF is checked within limits, and loses what acts by itself."""

import io

import pikepdf
import pytest

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf import limits
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.templating.pictures import PictureLimits, picture_data
from kesin.workloads.pdf.uploads import checking
from kesin.workloads.pdf.uploads.checking import CheckedFile, check_file, clean_pdf
from tests.attacks.bombs import png
from tests.workloads.pdf.uploads.files import active_pdf, new_pdf, object_bomb, page_loop


def check(data: bytes, media_type: str = "application/pdf") -> CheckedFile:
    return check_file(data, media_type, PictureLimits())


@pytest.mark.usefixtures("children")
def test_what_acts_by_itself_is_removed_and_the_same_bytes_give_the_same_pdf():
    cleaned = check(active_pdf())
    assert (cleaned.kind, cleaned.media_type, cleaned.pages) == ("pdf", "application/pdf", 1)
    assert cleaned.data == check(active_pdf()).data
    with pikepdf.open(io.BytesIO(cleaned.data)) as pdf:
        assert not {"/OpenAction", "/AA"} & pdf.Root.keys()
        assert "/XFA" not in pdf.Root.AcroForm
        assert not pdf.attachments
        assert "/A" not in pdf.pages[0].Annots[0]
    for remains in (b"JavaScript", b"calc.exe", b"MZ"):
        assert remains not in cleaned.data


def test_a_cleaned_pdf_stays_as_it_is():
    cleaned = check(new_pdf(3)).data
    assert check(cleaned).data == cleaned


def test_a_pdf_that_cannot_be_used_is_refused_with_its_reason(subtests):
    for data, why in (
        (b"%PDF-1.7 and nothing", "cannot be read"),
        (new_pdf(encryption=pikepdf.Encryption(user="u", owner="o")), "encrypted"),
        (new_pdf(encryption=pikepdf.Encryption(user="", owner="o")), "encrypted"),
        (new_pdf(0), "0 pages"),
        (page_loop(), "cannot be read"),
    ):
        with subtests.test(why), pytest.raises(TemplateError, match=why):
            clean_pdf({}, data)


def test_too_many_pages_or_objects_are_refused(monkeypatch):
    with pytest.raises(TemplateError, match="501 pages"):
        clean_pdf({}, new_pdf(limits.MAX_PAGES + 1))
    monkeypatch.setattr("kesin.workloads.pdf.uploads.checking.MAX_UPLOADED_OBJECTS", 3)
    with pytest.raises(TemplateError, match="more than 3 objects"):
        clean_pdf({}, new_pdf(2))


def test_a_bomb_ends_its_process_and_not_ours(monkeypatch):
    small = checking.LIMITS._replace(memory_bytes=256 * 1024 * 1024, cpu_s=2)
    monkeypatch.setattr(checking, "LIMITS", small)
    with pytest.raises(Invalid) as refused:
        check(object_bomb(400_000_000))
    assert refused.value.code == "UPLOAD_REFUSED"


def test_the_bytes_decide_what_a_file_is():
    assert check(new_pdf(), "text/plain").kind == "pdf"
    pixel = picture_data(png(1)) or b""
    assert check(pixel, "text/plain")[::2] == ("file", "image/png")
    assert check(b"<a/>", "application/xml")[:3] == ("file", b"<a/>", "application/xml")
    assert check(b"x", "no type").media_type == "application/octet-stream"
    for data, named in ((b"x", "application/pdf"), (b"x", "image/png"), (b"", "text/plain")):
        with pytest.raises(Invalid, match="Content-Type"):
            check(data, named)


def test_a_picture_that_is_too_large_is_refused():
    large = picture_data(png(20_000, pixels=False)) or b""
    with pytest.raises(Invalid, match="million pixels"):
        check(large, "image/png")
