"""Uploaded pictures in variables: ``upload:file-…`` stands for the data: URI of the picture."""

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.workloads.pdf.errors import invalid_fields
from kesin.workloads.pdf.limits import MAX_HTML_BYTES
from kesin.workloads.pdf.templating.pictures import find_texts, picture_type, pixel_count
from kesin.workloads.pdf.uploads.store import PdfUploads

RULE: Final = "upload"  # that a reference breaks
MAX_PICTURES: Final = 20  # in the variables of a document
_PREFIX: Final = "upload:"
_REFERENCE: Final = re.compile(rf"{_PREFIX}file-[0-9a-f]{{64}}")


def has_uploads(variables: Mapping[str, Any]) -> bool:
    return any(find_texts(_REFERENCE.fullmatch, variables))


class UploadedPictures:
    """The uploads as pictures. The last ones are kept: documents of an owner share a logo."""

    def __init__(self, uploads: PdfUploads) -> None:
        self._uploads = uploads
        self._uri = lru_cache(MAX_PICTURES)(self._read_uri)

    def insert(
        self, owner: str, variables: Mapping[str, Any], usable: set[str] | None = None
    ) -> Any:
        """Return the variables with the pictures; raises RenderFailed and StorageError.

        For a new request, ``usable`` holds uploads that it may name; others are checked and added.
        Raises Invalid with the path for what cannot be used.
        """
        used: dict[str, str] = {}
        for path, text in find_texts(_REFERENCE.fullmatch, variables):
            upload_id = text.removeprefix(_PREFIX)
            if usable is not None and upload_id not in usable:
                self._uploads.require(owner, upload_id, path)
                usable.add(upload_id)
            used[text] = self._uri(owner, upload_id)
            if not used[text]:
                why = "must be a picture: PNG, JPEG, GIF or WebP"
                raise invalid_fields([(path, why, RULE)])
            if len(used) > MAX_PICTURES or sum(map(len, used.values())) > MAX_HTML_BYTES:
                why = "with it, there are more than %(n)s pictures, or more than %(most)s bytes"
                why = Message(why, n=MAX_PICTURES, most=MAX_HTML_BYTES)
                raise invalid_fields([(path, why, RULE)])
        return _replace(variables, used) if used else variables

    def _read_uri(self, owner: str, upload_id: str) -> str:
        """Return the data: URI of an upload; empty for what is no picture."""
        data = self._uploads.read(owner, upload_id)
        if pixel_count(data) is None:
            return ""
        return f"data:{picture_type(data)};base64,{base64.b64encode(data).decode()}"


def _replace(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a value with other texts in place of these, wherever they are in it."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replace(inner, texts) for name, inner in value.items()}
    return [_replace(inner, texts) for inner in value] if isinstance(value, list) else value
