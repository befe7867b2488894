"""The child process that checks an uploaded PDF and removes what is active in it.

A PDF may be built to take all memory, or to run for ever: only a process has limits.
"""

import io
import zlib
from typing import Any, Final

import pikepdf
from pikepdf.sanitize import Sanitizer

from kesin.workloads.pdf.channel import serve_task
from kesin.workloads.pdf.errors import TemplateError
from kesin.workloads.pdf.limits import MAX_UPLOADED_OBJECTS, check_pages

DAMAGED: Final = (pikepdf.PdfError, zlib.error, AttributeError, KeyError, TypeError, ValueError)


def clean_pdf(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the number of pages and the PDF without what is active; raises RenderFailed.

    The same bytes give the same PDF.
    """
    try:
        with pikepdf.open(io.BytesIO(data)) as pdf:
            if pdf.is_encrypted:
                raise _encrypted()
            if len(pdf.objects) > MAX_UPLOADED_OBJECTS:
                why = "the PDF has more than %(most)s objects"
                raise TemplateError(why, most=MAX_UPLOADED_OBJECTS)
            pages = len(pdf.pages)
            check_pages(pages)
            _remove_active_content(pdf)
            out = io.BytesIO()
            streams = pikepdf.ObjectStreamMode.generate
            pdf.save(out, deterministic_id=True, object_stream_mode=streams)
    except pikepdf.PasswordError:
        raise _encrypted() from None
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the PDF cannot be read: %(problem)s", problem=problem) from None
    return {"pages": pages}, out.getvalue()


def _encrypted() -> TemplateError:
    return TemplateError("the PDF is encrypted: send it without a password")


def _remove_active_content(pdf: pikepdf.Pdf) -> None:
    cleaner = Sanitizer().remove_javascript().remove_external_access().remove_attachments()
    cleaner.remove_multimedia().remove_private_app_data().remove_collection()
    cleaner.remove_web_capture().remove_search_index().remove_thumbnails().apply(pdf)
    if "/XFA" in pdf.Root.get("/AcroForm", {}):
        del pdf.Root.AcroForm.XFA
    if "/ID" in pdf.trailer:
        del pdf.trailer["/ID"]  # the first half of an old identifier would be kept


def main() -> None:
    serve_task(lambda _, data: clean_pdf(data))


if __name__ == "__main__":
    main()
