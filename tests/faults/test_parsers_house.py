"""Settings, names, headers, forms and stored text: whatever comes is read or refused by us."""

import json
import re
from contextlib import suppress
from ipaddress import ip_network

import pytest
from hypothesis import example
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kesin.cli.commands.queues import _parse_payload
from kesin.cli.support.arguments import FilterOptions as Typed
from kesin.cli.support.errors import UsageError
from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.encryption import KeyRing, new_key
from kesin.foundation.passwords import equal_secrets, hash_token, key_id_of, password_matches
from kesin.foundation.problems import Problem
from kesin.foundation.settings import BadSettings, load_settings, mask_secrets
from kesin.foundation.text import NotJson, canonical_json, decode_json, storable
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.open import _check_postgres, open_store
from kesin.store.records import Filter, Outcome
from kesin.store.sqlite.store import SqliteStore
from kesin.web.dashboard.forms.uploads import parse_upload
from kesin.web.dashboard.frame.routes import safe_path
from kesin.web.dashboard.queues.filters import read_filter
from kesin.web.schemas import Time
from tests.faults.fuzz import STRANGE, answered, broken, broken_json, broken_text, given

SETTINGS = {
    "KESIN_PORT": "8000",
    "KESIN_GRACE_S": "30",
    "KESIN_BODY_LIMIT": "10_000_000",
    "KESIN_OCI_REVIVE": "true",
    "KESIN_LOG": "json",
    "KESIN_DATABASE_URL": "postgresql://kesin:s3cret@db/kesin",
    "KESIN_REDIS_URL": "redis://:s3cret@cache/0",
    "KESIN_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
    "KESIN_OCI_GOOGLE_URL": "https://googleads.googleapis.com/",
    "KESIN_OCI_GOOGLE_VERSION": "v26",
    "KESIN_CRON_SECRET": "s3cret-of-16-letters",
    "KESIN_SECRET_KEYS": new_key("first"),
}


@given(st.data(), few=8)  # reading the environment takes long
def test_the_environment_is_settings_or_told_to_be_bad(data):
    name = data.draw(st.sampled_from(sorted(SETTINGS)))
    value = data.draw(broken_text(SETTINGS[name])).replace("\0", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value.encode("utf-8", "replace").decode())
        settings = answered(BadSettings, load_settings)
    if isinstance(settings, BadSettings):
        assert name in str(settings)
        in_its_place = re.search("//[^/?#@:]*:.*s3cret.*@", value, re.DOTALL)
        assert "s3cret" not in str(settings) or not (in_its_place or "SECRET" in name)
        return
    assert 1 <= settings.port <= 65_535
    assert 0 < settings.grace_s <= 600
    assert all(ip_network(one.strip(), strict=False) for one in filter(str.strip, settings.trusted_proxies.split(",")))
    assert settings.database


@given(broken_text("postgresql://kesin:", "redis://"), broken_text("@db/kesin?a=b", "@cache"))
@example('"postgresql://u:', "@h/d")
@example("postgres://u:a\nb", "@h/d")
@example("postgres://u:a/b@", "@h/d")
def test_no_address_is_shown_with_its_password(before, after):
    if re.search("//[^/?#@:]*:", before) and "@" in after:
        assert "s3cret" not in mask_secrets(f"{before}s3cret{after}")
    mask_secrets(before + after)


@given(broken_text(new_key("first"), f"{new_key('a')},{new_key('b')}"))
def test_keys_are_a_ring_or_refused_without_being_repeated(text):
    ring = answered(BadSettings, KeyRing.from_setting, text)
    if isinstance(ring, BadSettings):
        assert all(one not in str(ring) for one in re.findall("[A-Za-z0-9_-]{20,}", text))
        return
    assert ring.open("name", ring.seal("name", "text")) == "text"


KEY = "kesin_abcdefgh_" + "A" * 43


@given(broken_text(KEY, "kesin_session_x"))
@example("\ud800" + KEY)
def test_a_key_has_an_id_or_is_none(key):
    found = key_id_of(key)
    assert found is None or (len(found) == 8 and len(key) == len(KEY))
    assert len(hash_token(key)) == 64
    assert not password_matches("$argon2id$v=19$broken", key)
    assert equal_secrets(key, KEY) == (key == KEY)


# Stored text


@given(broken_json({"a": [1, {"b": "c"}]}))
def test_a_payload_has_one_spelling_or_is_no_json(value):
    try:
        text = canonical_json(value)
    except NotJson:
        return
    assert storable(text) == text
    assert canonical_json(json.loads(text)) == text


@given(broken(b'{"a": [1]}', b'"text"'))
@example(b"[" * 5_000)
def test_the_command_line_reads_json_or_says_how_to_write_it(data):
    text = data.decode("utf-8", "surrogateescape")
    with suppress(UsageError):
        _parse_payload(text)
    decode_json(text)


@pytest.fixture(scope="module")
def queue(ready_file, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "kesin.db"
    path.write_bytes(ready_file.read_bytes())
    store = SqliteStore(path)
    queue = Queue("task", task_lifecycle(), store)
    queue.enqueue({}, key="one", tenant="north")
    yield queue
    store.close()


TEXTS = ("00000000-0000-7000-8000-000000000000", "north", "%_x", "one")


@given(data=st.data())
def test_a_page_is_found_or_its_question_refused(queue, data):
    text = st.none() | broken_text(*TEXTS)
    where = Filter(
        states=tuple(data.draw(st.lists(broken_text("QUEUED"), max_size=2))),
        tenants=data.draw(st.none() | st.lists(broken_text("north"), max_size=2).map(tuple)),
        dedup_key=data.draw(text),
        text=data.draw(text),
        contains=data.draw(text),
    )
    with suppress(StoreError):
        page = queue.jobs(where, limit=data.draw(st.integers(-1, 600)), cursor=data.draw(text))
        assert len(page.jobs) <= 1


@given(data=st.data())
def test_a_job_is_taken_as_it_is_or_refused(queue, data):
    texts = st.none() | broken_text(*TEXTS)
    value = data.draw(broken_json({"n": [1, "a"]}) | st.sampled_from(STRANGE))
    with suppress(BadInput, StoreError):
        made = queue.enqueue(value, key=data.draw(texts), tenant=data.draw(broken_text("north")))
        assert isinstance(made, Outcome | Job)
        job = queue.store.job(made.id)
        if job is not None:
            assert storable(job.payload_json) == job.payload_json


@given(st.lists(broken_text("QUEUED"), max_size=2), st.lists(broken_text("transient"), max_size=2))
def test_options_of_a_command_are_a_filter_or_refused(states, categories):
    with suppress(UsageError):
        found = Typed(states=states, categories=categories).to_filter(None)
        assert set(found.categories) <= {one.upper() for one in categories}


# Requests


@given(broken_text("2026-12-31T23:59:59Z", "9999-12-31T23:59:59.123457+14:00"))
def test_a_time_is_kept_to_the_microsecond_or_refused(text):
    with suppress(ValidationError):
        at = TypeAdapter(Time).validate_python(text)
        assert at.tzinfo is not None
        assert 1970 <= at.year <= 9999


@given(broken_text("/dashboard/queues/task?x=1", "//evil.example", "/dashboard/../x", "https://e"))
def test_a_way_back_leads_to_a_page_of_ours(text):
    path = safe_path(text)
    assert path.startswith("/dashboard")
    assert path == "/dashboard" or path[10:11] in {"/", "?", "#"}
    assert path.isprintable()


HEADING = 'multipart/form-data; boundary="xyz"'
FILE = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="l.csv"\r\n\r\nx\r\n--xyz--'
MULTIPART = (
    b'--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' + FILE,
    FILE.replace(b'filename="l.csv"', b"filename*=utf-8''%41.csv"),
)


@given(broken(*MULTIPART), st.just(HEADING) | broken_text(HEADING, "multipart/form-data; boundary*=idna''xyz"))
@example(MULTIPART[1].replace(b"utf-8''", b"idna''"), HEADING)
@example(MULTIPART[1].replace(b"utf-8''", b"a\0b''"), HEADING)
@example(MULTIPART[0], "multipart/form-data; boundary*=idna''xyz")
def test_a_form_with_a_file_is_taken_apart_or_refused(body, kind):
    with suppress(Problem):
        form = parse_upload(body, storable(kind).encode("latin-1", "ignore").decode("latin-1"))
        assert isinstance(form.file_name, str)
        assert len(form.data) <= len(body)


@given(
    st.dictionaries(
        st.sampled_from(["ids", "state", "code", "category", "site", "age", "text"]),
        st.lists(broken_text(*TEXTS, "QUEUED", "1h"), max_size=2),
    )
)
def test_fields_of_an_address_are_a_filter(fields):
    wanted = read_filter(fields, task_lifecycle())
    assert wanted.filter(1_800_000_000_000_000)


@given(broken_text("postgresql://kesin@db:5432/kesin?sslmode=require", "mysql://x"))
@example("postgresql://[")
@example("postgresql://u:s3cret%zz@h/d")
def test_an_address_of_a_database_that_cannot_be_one_is_refused_at_once(address):
    if address.startswith(("postgresql://", "postgres://")):
        refusal = answered(StoreError, _check_postgres, storable(address))
        assert "s3cret" not in str(refusal)
    elif "://" in address and not address.startswith(("sqlite:///", "redis", "unix")):
        with pytest.raises(StoreError):
            open_store(address)
