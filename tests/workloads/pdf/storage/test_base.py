"""The promises of every storage, and which storage an address means."""

import itertools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kesin.foundation.clock import wall_clock_us
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.base import BadKey, NotStored, StorageBackend, StorageMisconfigured, attachment_header
from kesin.workloads.pdf.storage.local import MARKER, LocalStorage
from kesin.workloads.pdf.storage.s3 import S3Storage
from tests.workloads.pdf.s3 import BUCKET, ENVIRON
from tests.workloads.pdf.storages import HOUR_US, KEY, PDF

HOSTILE = [
    "", "/", ".", "..", "../secret.pdf", "pdfs/../../secret.pdf", "pdfs/..", "pdfs/./a.pdf",
    "/etc/passwd", "//server/share", "pdfs//a.pdf", "pdfs/", "~/a.pdf", "-rf", ".hidden",
    f"pdfs/{MARKER}", "pdfs/a.pdf\0.txt", "pdfs/a\n.pdf", "pdfs/a.pdf\n", "C:\\windows\\a.pdf",
    "C:a.pdf", "..\\a.pdf", "pdfs\\a.pdf", "\\\\?\\C:\\a.pdf", "a.pdf:stream", "pdfs/a.",
    "pdfs/a ", "pdfs/%2e%2e/a.pdf", "file:///etc/passwd", "pdfs/a?b#c", "pdfs/ş.pdf",
    "pdfs/\u2215a", "pdfs/٣.pdf", "pdfs/\ud800.pdf", "a" * 129, "a" * 100_000,
    "/".join(["a"] * 17), "/".join(["a" * 100] * 6),
]  # fmt: skip


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


# Every storage


def test_stored_bytes_are_read_back(storage):
    for key, data in (("pdfs/a/1.pdf", b"%PDF-1.7 \0\xff"), ("b", b""), ("c/d", bytes(range(256)) * 4096 * 12)):
        storage.put_bytes(key, data, PDF)
        storage.put_bytes(key, data, PDF)  # the same may be put again
        assert storage.get_bytes(key) == data
        assert storage.exists(key) is True
        assert storage.head(key).size == len(data)


def test_a_missing_object_is_not_stored(storage):
    storage.put_bytes("pdfs/other/1.pdf", b"x", PDF)
    assert storage.exists(KEY) is False
    for call in (
        storage.get_bytes,
        storage.head,
        lambda key: storage.get_range(key, 0, 5),
        lambda key: storage.get_range(key, 5, 5),
    ):
        with pytest.raises(NotStored) as caught:
            call(KEY)
        assert repr(KEY) in str(caught.value)
    assert storage.exists("pdfs") is False  # a folder of keys is no object
    assert storage.delete("pdfs") is False
    with pytest.raises(NotStored):
        storage.get_bytes("pdfs")


def test_a_range_is_cut_as_python_cuts(storage):
    data = b"0123456789"
    storage.put_bytes(KEY, data, PDF)
    for start, end in ((0, 4), (3, 7), (0, 10), (8, 99), (10, 11), (50, 60), (4, 4), (0, 0)):
        assert storage.get_range(KEY, start, end) == data[start:end], (start, end)
    for start, end in ((-1, 4), (5, 4), (-3, -1)):
        with pytest.raises(ValueError, match="0 <= start <= end"):
            storage.get_range(KEY, start, end)


def test_a_list_goes_by_whole_segments(storage):
    for key in ("pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/ab/3.pdf", "zips/4.zip"):
        storage.put_bytes(key, key.encode(), PDF)
    keys = ["pdfs/a/1.pdf", "pdfs/a/2.pdf", "pdfs/ab/3.pdf", "zips/4.zip"]
    assert sorted(item.key for item in storage.list()) == keys
    assert sorted(item.key for item in storage.list("pdfs")) == keys[:3]
    assert sorted(item.key for item in storage.list("pdfs/a")) == keys[:2]
    assert [item.key for item in storage.list("pdf")] == []
    assert [item.key for item in storage.list("nothing/here")] == []
    assert {item.size for item in storage.list("pdfs/ab")} == {len("pdfs/ab/3.pdf")}


def test_objects_have_a_size_and_an_age_and_a_list_can_omit_new_ones(storage):
    storage.put_bytes(KEY, b"12345", PDF)
    now, head = wall_clock_us(), storage.head(KEY)
    assert (head.key, head.size) == (KEY, 5)
    assert abs(head.modified_us - now) < HOUR_US
    assert [item.key for item in storage.list("pdfs", before_us=now + HOUR_US)] == [KEY]
    assert list(storage.list("pdfs", before_us=now - HOUR_US)) == []
    changed = next(storage.list()).modified_us
    assert list(storage.list(before_us=changed)) == []
    assert [item.key for item in storage.list(before_us=changed + 1)] == [KEY]


def test_objects_may_be_deleted_while_they_are_listed(storage):
    for number in range(7):
        storage.put_bytes(f"pdfs/job-{number}/1.pdf", b"x", PDF)
    deleted = [storage.delete(item.key) for item in storage.list("pdfs")]
    assert deleted == [True] * 7
    assert list(storage.list()) == []


def test_no_key_leads_out_of_the_storage(storage):
    for key in HOSTILE:
        calls = (
            lambda key: storage.put_bytes(key, b"x", PDF),
            storage.get_bytes,
            lambda key: storage.get_range(key, 0, 1),
            lambda key: storage.get_range(key, 1, 1),
            storage.head,
            storage.exists,
            storage.delete,
            *([lambda key: list(storage.list(key))] if key else []),
        )
        for call in calls:
            with pytest.raises(BadKey) as caught:
                call(key)
            assert len(str(caught.value)) < 500
    assert list(storage.list()) == []


def test_many_threads_may_put_and_delete_at_once(storage):
    storage.put_bytes("pdfs/shared/stays.pdf", b"x", PDF)

    def work(name: int) -> None:
        for number in range(15):
            key = f"pdfs/shared/{name}-{number}.pdf"
            storage.put_bytes(key, str(name).encode(), PDF)
            assert storage.get_bytes(key) == str(name).encode()
            assert storage.delete(key)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert [item.key for item in storage.list()] == ["pdfs/shared/stays.pdf"]


SEGMENTS = st.text("abzAZ09._=@-", min_size=1, max_size=12).filter(
    lambda text: text[0] not in "._=@-" and text[-1] != "."
)
FOLDERS = st.lists(SEGMENTS.map(lambda text: text.replace(".", "_")), max_size=4)
OBJECT_KEYS = st.builds(lambda folders, name: "/".join([*folders, f"{name}.pdf"]), FOLDERS, SEGMENTS)
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
        listed = {item.key: item.size for item in self.storage.list()}
        assert listed == {key: len(data) for key, data in self.held.items()}


def test_a_storage_behaves_as_a_dictionary(make, request):
    patient = settings(
        max_examples=100 if request.config.getoption("--long") else 10,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    class OverNewStorage(Model):
        def __init__(self):
            super().__init__(make())

    run_state_machine_as_test(OverNewStorage, settings=patient)


# Addresses


def test_a_path_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_storage("artifacts/pdf").put_bytes(KEY, b"x", PDF)
    assert open_storage(str(tmp_path / "artifacts" / "pdf")).get_bytes(KEY) == b"x"
    assert open_storage(f"file://{tmp_path}/artifacts/p%64f").get_bytes(KEY) == b"x"
    assert open_storage(f"file://localhost{tmp_path}/artifacts/pdf").get_bytes(KEY) == b"x"


def set_environment(monkeypatch, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_an_s3_address_is_a_bucket(s3_server, monkeypatch):
    set_environment(monkeypatch, ENVIRON)
    storage = open_storage(s3_server.url("of/address"))
    storage.put_bytes(KEY, b"x", PDF)
    assert s3_server.storage("of/address").get_bytes(KEY) == b"x"
    assert repr(storage) == "S3Storage('s3://artifacts/of/address')"
    assert isinstance(storage, S3Storage)
    assert storage._store.config["region"] == "eu-central-1"


def test_the_environment_may_name_the_server(s3_server, monkeypatch):
    server = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": "x-1"}
    set_environment(monkeypatch, ENVIRON | server)
    storage = open_storage(f"s3://{BUCKET}")
    assert storage.exists("pdfs/nobody.pdf") is False
    assert isinstance(storage, S3Storage)
    assert storage._store.config["endpoint"] == s3_server.endpoint
    assert storage._store.config["region"] == "x-1"


def test_a_wrong_address_is_explained(subtests):
    for url, problem in (
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
        ("s3://bucket?conditional=maybe", "conditional must be on or off"),
        ("s3://bucket?redirect=no", "redirect must be on or off"),
    ):
        with subtests.test(url), pytest.raises(StorageMisconfigured, match=problem):
            open_storage(url)


def test_credentials_in_an_address_are_refused_and_not_repeated():
    with pytest.raises(StorageMisconfigured, match="AWS_ACCESS_KEY_ID") as caught:
        open_storage("s3://name:hush@bucket/prefix")
    assert "hush" not in str(caught.value)


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "kesin.workloads.pdf.storage.s3")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StorageMisconfigured, match=r"kesin\[s3\]"):
        open_storage("s3://bucket")


def test_a_download_is_named_safely():
    for name, header in (
        ("a.pdf", "attachment; filename=\"a.pdf\"; filename*=UTF-8''a.pdf"),
        ("ş 1.pdf", "attachment; filename=\"_ 1.pdf\"; filename*=UTF-8''%C5%9F%201.pdf"),
        ('../"x\r\n.pdf', "attachment; filename=\"_x_.pdf\"; filename*=UTF-8''_x_.pdf"),
        ("", "attachment; filename=\"document.pdf\"; filename*=UTF-8''document.pdf"),
        ("\ud800.pdf", "attachment; filename=\"_.pdf\"; filename*=UTF-8''_.pdf"),
    ):
        assert attachment_header(name) == header, name
