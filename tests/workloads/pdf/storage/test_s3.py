from collections.abc import Iterator

import httpx
import obstore
import pytest

from kesin.workloads.pdf.storage.base import KeyTaken, StorageDown
from kesin.workloads.pdf.storage.s3 import S3Credentials, S3Storage
from tests.workloads.pdf.s3 import (
    BUCKET,
    CREDENTIALS,
    NOTHING_LISTED,
    S3Server,
    Said,
    failure,
    told,
)
from tests.workloads.pdf.storages import KEY, PDF, asks_of


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_a_server_that_is_stopped_is_down_not_empty_and_comes_back():
    with S3Server() as server:
        storage = server.storage()
        storage.put_bytes(KEY, b"x", PDF)
        server.kill()
        for ask in asks_of(storage):
            with pytest.raises(StorageDown, match=r"s3://artifacts does not serve"):
                ask()
        server.start()
        assert storage.exists(KEY) is True
        assert storage.get_bytes(KEY) == b"x"
        assert storage.exists("pdfs/other.pdf") is False


def test_a_bucket_that_is_not_there_is_down_not_empty(s3_server):
    for ask in asks_of(s3_server.storage(bucket="forgotten")):
        with pytest.raises(StorageDown):
            ask()


def test_a_server_that_refuses_us_is_down_not_empty(s3_server):
    storage = s3_server.storage(credentials=S3Credentials(CREDENTIALS.access_key_id, "wrong"))
    for ask in asks_of(storage):
        with pytest.raises(StorageDown) as caught:
            ask()
        assert "wrong" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_prefix_keeps_apart(s3_server):
    one, two = s3_server.storage("apart/one"), s3_server.storage("apart/two")
    one.put_bytes(KEY, b"one", PDF)
    assert two.exists(KEY) is False
    assert list(two.list()) == []
    assert [found.key for found in s3_server.storage("apart").list()] == [f"one/{KEY}"]


def test_what_somebody_else_put_there_is_not_ours(s3_server):
    storage = s3_server.storage("mixed")
    storage.put_bytes(KEY, b"x", PDF)
    obstore.put(storage._store, "notes of mine.txt", b"x")
    assert [found.key for found in storage.list()] == [KEY]


def test_the_type_goes_with_the_object_and_the_url_names_the_file(s3_server):
    storage = s3_server.storage("signed")
    storage.put_bytes(KEY, b"%PDF-", PDF)
    url = storage.presign(KEY, 60, "Fatura ş & 100%.pdf")
    assert url is not None
    got = httpx.get(url)
    assert (got.status_code, got.content) == (200, b"%PDF-")
    assert got.headers["content-type"] == PDF
    assert httpx.get(url.replace("Fatura", "Virus")).status_code == 403
    assert httpx.get(url.replace("Expires=60", "Expires=61")).status_code == 403
    assert httpx.get(url.partition("?")[0]).is_client_error


def test_a_url_lives_a_week_at_most(s3_server):
    for seconds in (0, -1, 7 * 24 * 3600 + 1):
        with pytest.raises(ValueError, match="604800"):
            s3_server.storage().presign(KEY, seconds, "a.pdf")


def test_without_keys_of_its_own_it_gives_no_urls():
    assert S3Storage(BUCKET, endpoint="http://127.0.0.1:9").presign(KEY, 60, "a.pdf") is None


def test_a_temporary_credential_is_part_of_the_url():
    credentials = S3Credentials("a", "b", "the/token+")
    url = S3Storage(BUCKET, endpoint="http://127.0.0.1:9", credentials=credentials).presign(
        KEY, 60, "a.pdf"
    )
    assert url is not None
    assert "X-Amz-Security-Token=the%2Ftoken%2B&" in url


def test_an_upload_is_checked_and_takes_no_key_in_use():
    with told() as server:
        server.script = [Said(200)]
        server.storage().put_bytes(KEY, b"data", PDF)
        (put,) = server.came
    assert (put.method, put.path, put.body) == ("PUT", f"/{BUCKET}/{KEY}", b"data")
    assert put.headers["if-none-match"] == "*"
    assert put.headers["content-type"] == PDF
    assert put.headers["x-amz-checksum-sha256"] == "Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc="


def test_an_upload_whose_answer_was_lost_has_succeeded():
    with told() as server:
        server.script = [failure(412, "PreconditionFailed"), Said(200, b"data")]
        server.storage().put_bytes(KEY, b"data", PDF)


@pytest.mark.parametrize(
    "found", [[Said(200, b"other")], [failure(404, "NoSuchKey"), NOTHING_LISTED]]
)
def test_an_upload_over_something_else_is_refused(found):
    with told() as server:
        server.script = [failure(412, "PreconditionFailed"), *found]
        with pytest.raises(KeyTaken):
            server.storage().put_bytes(KEY, b"data", PDF)


def test_the_condition_can_be_left_out():
    with told() as server:
        server.script = [Said(200)]
        server.storage(conditional=False).put_bytes(KEY, b"data", PDF)
        assert "if-none-match" not in server.came[0].headers


def test_a_delete_is_the_request_every_server_knows():
    with told() as server:
        server.script = [Said(200), Said(204)]
        assert server.storage().delete(KEY) is True
        assert [one.method for one in server.came] == ["HEAD", "DELETE"]


def test_a_part_is_asked_for_as_a_part():
    with told() as server:
        server.script = [Said(206, b"345", (("Content-Range", "bytes 3-5/10"),))]
        assert server.storage().get_range(KEY, 3, 6) == b"345"
        assert server.came[0].headers["range"] == "bytes=3-5"


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_in_trouble_is_asked_again(status):
    with told() as server:
        server.script = [failure(status, "SlowDown"), Said(200, b"data")]
        assert server.storage(retries=1).get_bytes(KEY) == b"data"


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (500, "InternalError")])
def test_an_error_is_never_taken_for_missing(status, code):
    with told() as server:
        server.script = [failure(status, code)]
        with pytest.raises(StorageDown, match=str(status)):
            server.storage().exists(KEY)


def test_a_missing_object_in_a_missing_bucket_is_no_answer():
    with told() as server:
        server.script = [failure(404, ""), failure(404, "NoSuchBucket")]
        with pytest.raises(StorageDown, match="404"):
            server.storage().exists(KEY)


def test_an_answer_that_breaks_off_is_no_object():
    with told() as server:
        server.script = [Said(200, b"half", (("Content-Length", "100"),))]
        with pytest.raises(StorageDown):
            server.storage().get_bytes(KEY)


def test_no_secret_is_shown():
    assert "secret" not in repr(CREDENTIALS)
    assert CREDENTIALS.secret_access_key not in repr(
        S3Storage(BUCKET, credentials=CREDENTIALS).__dict__["_store"]
    )
