"""Artifacts in S3: a server that does not answer is down, and never empty."""

import os
from collections.abc import Iterator
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import urlopen

import obstore
import pytest

from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.base import KeyTaken, StorageDown
from tests.workloads.pdf.s3 import (
    BUCKET,
    ENVIRON,
    NOTHING_LISTED,
    S3Server,
    ScriptedResponse,
    ScriptedServer,
    failure,
    scripted_server,
)
from tests.workloads.pdf.storages import KEY, PDF, operations_of


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


def test_a_server_that_is_stopped_is_down_not_empty_and_comes_back():
    with S3Server() as server:
        storage = server.storage()
        storage.put_bytes(KEY, b"x", PDF)
        server.kill()
        for call in operations_of(storage):
            with pytest.raises(StorageDown, match=r"s3://artifacts does not work"):
                call()
        server.start()
        assert storage.exists(KEY) is True
        assert storage.get_bytes(KEY) == b"x"
        assert storage.exists("pdfs/other.pdf") is False


def test_a_missing_bucket_and_wrong_credentials_are_down_not_empty(s3_server):
    wrong = ENVIRON | {"AWS_SECRET_ACCESS_KEY": "wrong"}
    for storage in (s3_server.storage(bucket="forgotten"), s3_server.storage(environ=wrong)):
        for call in operations_of(storage):
            with pytest.raises(StorageDown) as caught:
                call()
            assert "wrong" not in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_presigned_address_serves_one_object_without_credentials_until_it_ends(s3_server):
    storage = s3_server.storage("signed")
    storage.put_bytes(KEY, b"data", PDF)
    url = storage.presign(KEY, 60)
    assert "X-Amz-Expires=60" in url
    with urlopen(url) as response:
        assert response.read() == b"data"
    for changed in (url.replace(KEY, "pdfs/other.pdf"), url.replace("Expires=60", "Expires=99")):
        with pytest.raises(HTTPError, match="403"):
            urlopen(changed)
    with patch.dict(os.environ, ENVIRON):
        assert open_storage(s3_server.url("signed") + "&redirect=off").presign(KEY, 60) is None


def test_prefixes_are_separate(s3_server):
    first, second = s3_server.storage("apart/one"), s3_server.storage("apart/two")
    first.put_bytes(KEY, b"one", PDF)
    assert second.exists(KEY) is False
    assert list(second.list()) == []
    assert [item.key for item in s3_server.storage("apart").list()] == [f"one/{KEY}"]


def test_foreign_objects_are_not_listed(s3_server):
    storage = s3_server.storage("mixed")
    storage.put_bytes(KEY, b"x", PDF)
    obstore.put(storage._store, "notes of mine.txt", b"x")
    assert [item.key for item in storage.list()] == [KEY]


def test_an_upload_is_checked_and_overwrites_no_object(scripted):
    scripted.script = [ScriptedResponse(200), ScriptedResponse(200)]
    scripted.storage().put_bytes(KEY, b"data", PDF)
    scripted.storage(conditional=False).put_bytes(KEY, b"data", PDF)
    put, unconditional = scripted.requests
    assert (put.method, put.path, put.body) == ("PUT", f"/{BUCKET}/{KEY}", b"data")
    assert put.headers["if-none-match"] == "*"
    assert put.headers["content-type"] == PDF
    assert put.headers["x-amz-checksum-sha256"] == "Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc="
    assert "if-none-match" not in unconditional.headers


def test_an_upload_whose_response_was_lost_has_succeeded_and_one_over_another_object_is_refused(scripted):
    taken = failure(412, "PreconditionFailed")
    scripted.script = [taken, ScriptedResponse(200, b"data")]
    scripted.storage().put_bytes(KEY, b"data", PDF)
    for responses in ([ScriptedResponse(200, b"other")], [failure(404, "NoSuchKey"), NOTHING_LISTED]):
        scripted.script = [taken, *responses]
        with pytest.raises(KeyTaken):
            scripted.storage().put_bytes(KEY, b"data", PDF)


def test_requests_are_those_that_every_server_knows(scripted, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the/token+")
    ranged = ScriptedResponse(206, b"345", (("Content-Range", "bytes 3-5/10"),))
    scripted.script = [ScriptedResponse(200), ScriptedResponse(204), ranged]
    storage = scripted.storage()
    assert storage.delete(KEY) is True
    assert storage.get_range(KEY, 3, 6) == b"345"
    assert [request.method for request in scripted.requests] == ["HEAD", "DELETE", "GET"]
    assert scripted.requests[-1].headers["range"] == "bytes=3-5"
    tokens = {request.headers["x-amz-security-token"] for request in scripted.requests}  # a temporary credential
    assert tokens == {"the/token+"}


def test_a_server_error_is_retried(scripted):
    for status in (500, 503):
        scripted.script = [failure(status, "SlowDown"), ScriptedResponse(200, b"data")]
        assert scripted.storage(retries=1).get_bytes(KEY) == b"data", status


def test_an_error_is_never_taken_for_a_missing_object(scripted, subtests):
    for responses, status in (
        ([failure(403, "AccessDenied")], "403"),
        ([failure(500, "InternalError")], "500"),
        ([failure(404, ""), failure(404, "NoSuchBucket")], "404"),
    ):
        scripted.script = responses
        with subtests.test(status), pytest.raises(StorageDown, match=status):
            scripted.storage().exists(KEY)


def test_a_truncated_response_is_no_object(scripted):
    scripted.script = [ScriptedResponse(200, b"half", (("Content-Length", "100"),))]
    with pytest.raises(StorageDown):
        scripted.storage().get_bytes(KEY)


def test_no_secret_is_shown(s3_server):
    storage = s3_server.storage()
    for shown in (repr(storage), repr(storage.__dict__["_store"]), repr(storage._store.config)):
        assert ENVIRON["AWS_SECRET_ACCESS_KEY"] not in shown
