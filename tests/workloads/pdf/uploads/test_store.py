"""Uploads are found by owner and id, for as long as a request or a job may need them."""

from contextlib import suppress
from pathlib import Path

import pytest

from kesin.foundation.problems import Invalid
from kesin.lifecycle.budget import HOUR_S, SECOND_US
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.storage.local import LocalStorage
from kesin.workloads.pdf.uploads.store import PdfUploads

START = 1_700_000_000 * SECOND_US


class Clocked(PdfUploads):
    """Uploads with a clock that tests set."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.storage = LocalStorage(folder)
        super().__init__(self.storage, lambda: self.now)

    def later(self, hours: float) -> None:
        self.now += round(hours * HOUR_S * SECOND_US)

    def usable(self, owner: str, upload_id: str) -> bool:
        with suppress(Invalid):
            self.require(owner, upload_id, "here")
            return True
        return False


@pytest.fixture
def uploads(tmp_path: Path) -> Clocked:
    return Clocked(tmp_path)


def test_only_the_owner_can_use_an_upload(uploads):
    upload_id, expires_at = uploads.store("me", b"data", "file")
    assert expires_at == START + 24 * HOUR_S * SECOND_US
    assert uploads.usable("me", upload_id)
    assert uploads.read("me", upload_id) == b"data"
    for owner, wanted in (("you", upload_id), ("me", upload_id.replace("file", "pdf"))):
        assert not uploads.usable(owner, wanted)
        with pytest.raises(RenderFailed, match="gone"):
            uploads.read(owner, wanted)


def test_a_missing_upload_is_refused_at_its_field(uploads):
    with pytest.raises(Invalid) as refused:
        uploads.require("me", f"pdf-{'0' * 64}", "then/0/append/upload")
    assert refused.value.code == "UPLOAD_NOT_FOUND"
    assert refused.value.details["fields"][0]["field"] == "then/0/append/upload"


def test_a_file_that_is_sent_again_has_the_same_id_and_is_usable_for_longer(uploads):
    upload_id, _ = uploads.store("me", b"data", "file")
    uploads.later(24)
    assert not uploads.usable("me", upload_id)
    assert uploads.read("me", upload_id) == b"data"  # a job that named it in time
    assert uploads.store("me", b"data", "file")[0] == upload_id
    assert uploads.usable("me", upload_id)
    assert uploads.store("me", b"data", "file")[0] == upload_id  # in the same microsecond


def test_a_file_stays_until_no_job_can_need_it(uploads):
    upload_id, _ = uploads.store("me", b"data", "file")
    uploads.later(2 * (24 + 3))
    assert uploads.delete_old(ttl_hours=3) == 0
    uploads.later(0.001)
    other, _ = uploads.store("me", b"other", "file")
    assert uploads.delete_old(ttl_hours=3) == 1
    assert [uploads.usable("me", each) for each in (upload_id, other)] == [False, True]


def test_damaged_bytes_are_not_used_while_an_older_copy_is_whole(uploads, tmp_path):
    upload_id, _ = uploads.store("me", b"data", "file")
    uploads.later(1)
    uploads.store("me", b"data", "file")
    newest = max(path for path in tmp_path.rglob("*") if path.name.isdecimal())
    newest.write_bytes(b"rot")
    assert uploads.read("me", upload_id) == b"data"


def test_other_objects_of_the_storage_are_left_alone(uploads):
    uploads.storage.put_bytes("uploads/note.txt", b"ours", "text/plain")
    uploads.later(10_000)
    assert uploads.delete_old(ttl_hours=1) == 0
    assert uploads.storage.exists("uploads/note.txt")
