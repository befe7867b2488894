"""What every storage promises, and which one an address means."""

import itertools
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kesin.foundation.clock import wall_clock_us
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.base import (
    BadKey,
    NotStored,
    StorageBackend,
    StorageMisconfigured,
    attachment_header,
)
from kesin.workloads.pdf.storage.local import MARKER, LocalStorage
from tests.workloads.pdf.s3 import BUCKET, ENVIRON, S3Server
from tests.workloads.pdf.storages import HOUR_US, KEY, PDF, at_once

HOSTILE = [
    "",
    "/",
    ".",
    "..",
    "../secret.pdf",
    "pdfs/../../secret.pdf",
    "pdfs/..",
    "pdfs/./a.pdf",
    "/etc/passwd",
    "//server/share",
    "pdfs//a.pdf",
    "pdfs/",
    "~/a.pdf",
    "-rf",
    ".hidden",
    f"pdfs/{MARKER}",
    "pdfs/a.pdf\0.txt",
    "pdfs/a\n.pdf",
    "pdfs/a.pdf\n",
    "C:\\windows\\a.pdf",
    "C:a.pdf",
    "..\\a.pdf",
    "pdfs\\a.pdf",
    "\\\\?\\C:\\a.pdf",
    "a.pdf:stream",
    "pdfs/a.",
    "pdfs/a ",
    "pdfs/%2e%2e/a.pdf",
    "file:///etc/passwd",
    "pdfs/a?b#c",
    "pdfs/ş.pdf",
    "pdfs/\u2215a",
    "pdfs/٣.pdf",
    "pdfs/\ud800.pdf",
    "a" * 129,
    "a" * 100_000,
    "/".join(["a"] * 17),
    "/".join(["a" * 100] * 6),
]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


NEW = itertools.count(1)


@pytest.fixture(params=["local", "s3"])
def make(request, tmp_path) -> Callable[[], StorageBackend]:
    """Makes empty storages."""
    if request.param == "local":
        return lambda: LocalStorage(tmp_path / f"artifacts-{next(NEW)}")
    server = request.getfixturevalue("s3_server")
    return lambda: server.storage(f"test/{next(NEW)}")


@pytest.fixture
def storage(make) -> StorageBackend:
    return make()


# What every storage promises.


def test_what_is_put_is_got(storage):
    storage.put_bytes(KEY, b"%PDF-1.7 \0\xff", PDF)
    assert storage.get_bytes(KEY) == b"%PDF-1.7 \0\xff"
    assert storage.exists(KEY) is True


def test_nothing_is_something_too(storage):
    storage.put_bytes(KEY, b"", PDF)
    assert storage.get_bytes(KEY) == b""
    assert storage.head(KEY).size == 0


def test_megabytes_survive(storage):
    data = bytes(range(256)) * 4096 * 12
    storage.put_bytes(KEY, data, PDF)
    assert storage.get_bytes(KEY) == data


def test_what_is_missing_is_said_to_be_missing(storage):
    storage.put_bytes("pdfs/other/1.pdf", b"x", PDF)
    assert storage.exists(KEY) is False
    for ask in (
        storage.get_bytes,
        storage.head,
        lambda key: storage.get_range(key, 0, 5),
        lambda key: storage.get_range(key, 5, 5),
    ):
        with pytest.raises(NotStored) as caught:
            ask(KEY)
        assert caught.value.key == KEY


def test_a_folder_of_keys_is_no_object(storage):
    storage.put_bytes(KEY, b"x", PDF)
    assert storage.exists("pdfs") is False
    assert storage.delete("pdfs") is False
    with pytest.raises(NotStored):
        storage.get_bytes("pdfs")
    assert storage.get_bytes(KEY) == b"x"


def test_deleting_says_whether_it_was_there_and_can_be_done_again(storage):
    storage.put_bytes(KEY, b"x", PDF)
    assert storage.delete(KEY) is True
    assert storage.delete(KEY) is False
    assert storage.exists(KEY) is False
    assert list(storage.list()) == []


def test_a_neighbour_outlives_a_delete(storage):
    storage.put_bytes("pdfs/a/1.pdf", b"1", PDF)
    storage.put_bytes("pdfs/a/2.pdf", b"2", PDF)
    storage.delete("pdfs/a/1.pdf")
    assert storage.get_bytes("pdfs/a/2.pdf") == b"2"


def test_a_key_can_be_used_again_after_a_delete(storage):
    storage.put_bytes(KEY, b"old", PDF)
    storage.delete(KEY)
    storage.put_bytes(KEY, b"new", PDF)
    assert storage.get_bytes(KEY) == b"new"


def test_the_same_bytes_may_be_put_again(storage):
    storage.put_bytes(KEY, b"same", PDF)
    storage.put_bytes(KEY, b"same", PDF)
    assert storage.get_bytes(KEY) == b"same"


@pytest.mark.parametrize(
    ("start", "end"), [(0, 4), (3, 7), (0, 10), (8, 99), (10, 11), (50, 60), (4, 4), (0, 0)]
)
def test_a_part_is_cut_as_python_cuts(storage, start, end):
    storage.put_bytes(KEY, b"0123456789", PDF)
    assert storage.get_range(KEY, start, end) == b"0123456789"[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (5, 4), (-3, -1)])
def test_a_part_needs_its_ends_in_order(storage, start, end):
    storage.put_bytes(KEY, b"0123456789", PDF)
    with pytest.raises(ValueError, match="0 <= start <= end"):
        storage.get_range(KEY, start, end)


def test_the_head_tells_size_and_age(storage):
    before = wall_clock_us()
    storage.put_bytes(KEY, b"12345", PDF)
    head = storage.head(KEY)
    assert (head.key, head.size) == (KEY, 5)
    assert abs(head.modified_us - before) < HOUR_US


def test_a_list_goes_by_whole_segments(storage):
    for key in ("pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/ab/3.pdf", "zips/4.zip"):
        storage.put_bytes(key, key.encode(), PDF)
    keys = ["pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/ab/3.pdf", "zips/4.zip"]
    assert sorted(one.key for one in storage.list()) == keys
    assert sorted(one.key for one in storage.list("pdfs")) == keys[:3]
    assert sorted(one.key for one in storage.list("pdfs/a")) == keys[:2]
    assert [one.key for one in storage.list("pdf")] == []
    assert [one.key for one in storage.list("nothing/here")] == []
    assert {one.size for one in storage.list("pdfs/ab")} == {len("pdfs/ab/3.pdf")}


def test_a_list_can_leave_out_what_is_fresh(storage):
    storage.put_bytes(KEY, b"x", PDF)
    now = wall_clock_us()
    assert [one.key for one in storage.list("pdfs", before_us=now + HOUR_US)] == [KEY]
    assert list(storage.list("pdfs", before_us=now - HOUR_US)) == []
    changed = next(storage.list()).modified_us
    assert list(storage.list(before_us=changed)) == []
    assert [one.key for one in storage.list(before_us=changed + 1)] == [KEY]


def test_what_is_listed_may_be_deleted_meanwhile(storage):
    for number in range(7):
        storage.put_bytes(f"pdfs/job-{number}/1.pdf", b"x", PDF)
    deleted = [storage.delete(one.key) for one in storage.list("pdfs")]
    assert deleted == [True] * 7
    assert list(storage.list()) == []


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key[:24]))
def test_no_key_leaves_its_place(make, key):
    storage = make()
    asks = (
        lambda: storage.put_bytes(key, b"x", PDF),
        lambda: storage.get_bytes(key),
        lambda: storage.get_range(key, 0, 1),
        lambda: storage.get_range(key, 1, 1),
        lambda: storage.head(key),
        lambda: storage.exists(key),
        lambda: storage.delete(key),
        lambda: storage.presign(key, 60, "a.pdf"),
        *([lambda: list(storage.list(key))] if key else []),
    )
    for ask in asks:
        with pytest.raises(BadKey) as caught:
            ask()
        assert len(str(caught.value)) < 500
    assert list(storage.list()) == []


def test_tidying_takes_no_object(storage):
    storage.put_bytes(KEY, b"x", PDF)
    assert storage.delete_partial_writes(wall_clock_us() + HOUR_US) == 0
    assert storage.get_bytes(KEY) == b"x"


def test_many_threads_may_put_and_delete_at_once(storage):
    storage.put_bytes("pdfs/shared/stays.pdf", b"x", PDF)
    assert at_once(storage, "pdfs/shared") == []
    assert [one.key for one in storage.list()] == ["pdfs/shared/stays.pdf"]


SEGMENTS = st.text("abzAZ09._=@-", min_size=1, max_size=12).filter(
    lambda text: text[0] not in "._=@-" and text[-1] != "."
)
FOLDERS = st.lists(SEGMENTS.map(lambda text: text.replace(".", "_")), max_size=4)
OBJECT_KEYS = st.builds(
    lambda folders, name: "/".join([*folders, f"{name}.pdf"]), FOLDERS, SEGMENTS
)
FEW_KEYS = st.sampled_from(["pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/b/1.pdf", "top.pdf"])


class Model(RuleBasedStateMachine):
    """A storage beside a dictionary."""

    def __init__(self, storage):
        super().__init__()
        self.storage = storage
        self.held = {}

    @rule(key=FEW_KEYS | OBJECT_KEYS, data=st.binary(max_size=200))
    def put(self, key, data):
        if self.held.setdefault(key, data) == data:
            self.storage.put_bytes(key, data, PDF)

    @rule(key=FEW_KEYS)
    def get(self, key):
        if key in self.held:
            assert self.storage.get_bytes(key) == self.held[key]
            assert self.storage.head(key).size == len(self.held[key])
        else:
            with pytest.raises(NotStored):
                self.storage.get_bytes(key)

    @rule(key=FEW_KEYS, start=st.integers(0, 220), length=st.integers(0, 220))
    def get_range(self, key, start, length):
        if key in self.held:
            expected = self.held[key][start : start + length]
            assert self.storage.get_range(key, start, start + length) == expected

    @rule(key=FEW_KEYS | OBJECT_KEYS)
    def delete(self, key):
        assert self.storage.delete(key) is (self.held.pop(key, None) is not None)

    @rule(key=FEW_KEYS)
    def exists(self, key):
        assert self.storage.exists(key) is (key in self.held)

    @rule()
    def tidy(self):
        self.storage.delete_partial_writes(wall_clock_us() + HOUR_US)

    @invariant()
    def lists_what_it_holds(self):
        listed = {one.key: one.size for one in self.storage.list()}
        assert listed == {key: len(data) for key, data in self.held.items()}


def test_a_storage_behaves_as_a_dictionary(make):
    patient = settings(
        max_examples=100,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Model(make()), settings=patient)


# Which storage an address means.


def test_a_path_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_storage("artifacts/pdf").put_bytes(KEY, b"x", PDF)
    assert open_storage(str(tmp_path / "artifacts" / "pdf")).get_bytes(KEY) == b"x"
    assert open_storage(f"file://{tmp_path}/artifacts/p%64f").get_bytes(KEY) == b"x"
    assert open_storage(f"file://localhost{tmp_path}/artifacts/pdf").get_bytes(KEY) == b"x"


def test_an_s3_address_is_a_bucket(s3_server):
    storage = open_storage(s3_server.url("of/address"), ENVIRON)
    storage.put_bytes(KEY, b"x", PDF)
    assert s3_server.storage("of/address").get_bytes(KEY) == b"x"
    assert repr(storage) == "S3Storage('s3://artifacts/of/address')"
    assert "eu-central-1" in (storage.presign(KEY, 60, "a.pdf") or "")


def test_the_environment_may_name_the_server(s3_server):
    environ = ENVIRON | {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": "x-1"}
    storage = open_storage(f"s3://{BUCKET}", environ)
    assert storage.exists("pdfs/nobody.pdf") is False
    url = storage.presign(KEY, 60, "a.pdf") or ""
    assert url.startswith(f"{s3_server.endpoint}/{BUCKET}/{KEY}?")
    assert "x-1" in url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a\0b", "NUL"),
        ("ftp://host/x", "unknown storage ftp://"),
        ("file://", "file:///folder"),
        ("file://host/folder", "file:///folder"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://b/prefix", "bucket"),
        ("s3://bucket/../x", "prefix"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket?endpiont=http://x", "endpiont"),
        ("s3://bucket?endpoint=minio:9000", "endpoint=https://"),
        ("s3://bucket?conditional=maybe", "on or off"),
    ],
)
def test_an_address_that_makes_no_sense_is_explained(url, said):
    with pytest.raises(StorageMisconfigured, match=said):
        open_storage(url, {})


def test_credentials_in_an_address_are_refused_and_not_repeated():
    with pytest.raises(StorageMisconfigured, match="AWS_ACCESS_KEY_ID") as caught:
        open_storage("s3://name:hush@bucket/prefix", {})
    assert "hush" not in str(caught.value)


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "kesin.workloads.pdf.storage.s3")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StorageMisconfigured, match=r"kesin\[s3\]"):
        open_storage("s3://bucket", {})


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a.pdf", "attachment; filename=\"a.pdf\"; filename*=UTF-8''a.pdf"),
        ("ş 1.pdf", "attachment; filename=\"_ 1.pdf\"; filename*=UTF-8''%C5%9F%201.pdf"),
        ('../"x\r\n.pdf', "attachment; filename=\"_x_.pdf\"; filename*=UTF-8''_x_.pdf"),
        ("", "attachment; filename=\"document.pdf\"; filename*=UTF-8''document.pdf"),
        ("\ud800.pdf", "attachment; filename=\"_.pdf\"; filename*=UTF-8''_.pdf"),
    ],
)
def test_a_download_is_named_safely(name, header):
    assert attachment_header(name) == header
