"""How jobs are listed, and found by words of their searchable fields: every store alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kesin.foundation.text import canonical_json
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import Filter, Listing
from kesin.store.search import FOLDED, MAX_TERM, fold, is_found, terms_of
from kesin.store.sql.store import SqlStore
from tests.store.scene import OPERATOR, PRODUCER, Scene, error, rolled_back

FIELDS = Listing("{to}", ("to", "order.number"))


@pytest.fixture
def mails(store):
    scene = Scene(store, "mails", task_lifecycle())
    store.write_listing("mails", FIELDS)
    return scene


def mail(scene, to, number=None, **details):
    [outcome] = scene.enqueue(scene.new(payload=json.dumps({"to": to, "order": {"number": number}}), **details))
    return outcome.id


def found(scene, text, **where):
    page = scene.store.jobs(scene.queue, Filter(search=text, **where))
    return [job.id for job in page.jobs]


def terms(store):
    assert isinstance(store, SqlStore)
    return sorted(row[0] for row in store._read(f"SELECT term FROM {store.dialect.table('search_term')}", {}))


def test_a_job_is_found_by_how_its_words_begin(mails):
    ada = mail(mails, "Ada Lovelace", "2026-0042")
    alan = mail(mails, "Alan Turing", 77)
    assert found(mails, "love") == found(mails, "ADA L") == found(mails, "0042") == [ada]
    assert found(mails, "2026-00") == found(mails, "2026 0042") == [ada]
    assert found(mails, "a") == [alan, ada]  # the newest first
    assert found(mails, "77") == [alan]
    for text in ("ovelace", "ada t", "0043", " ", "-", ""):
        assert found(mails, text) == []


def test_both_spellings_of_turkish_letters_find_a_job(mails):
    names = ("IŞIL Çağlar", "İrem ÖZTÜRK", "ışık", "Irmak")
    ids = {name: mail(mails, name) for name in names}
    for text, name in (
        ("isil", "IŞIL Çağlar"),
        ("ışıl", "IŞIL Çağlar"),
        ("CAG", "IŞIL Çağlar"),
        ("çağ", "IŞIL Çağlar"),
        ("IREM", "İrem ÖZTÜRK"),
        ("irem", "İrem ÖZTÜRK"),
        ("öz", "İrem ÖZTÜRK"),
        ("OZTURK", "İrem ÖZTÜRK"),
        ("IŞIK", "ışık"),
        ("ırmak", "Irmak"),
    ):
        assert found(mails, text) == [ids[name]], text


def test_a_search_takes_the_other_filters_too_and_has_pages_and_previews(mails):
    ids = [mail(mails, f"Ada {n}", tenant="a") for n in range(4)]
    other = mail(mails, "Ada", tenant="b")
    mail(mails, "Alan")
    assert found(mails, "ada", tenants=("a",)) == ids[::-1]
    assert found(mails, "ada", tenants=("c",)) == found(mails, "ada", states=("done",)) == []
    assert found(mails, "ada", states=("ready",), tenants=("b",)) == [other]
    page = mails.store.jobs("mails", Filter(search="ada"), limit=3)
    rest = mails.store.jobs("mails", Filter(search="ada"), limit=3, cursor=page.cursor)
    assert [job.id for job in (*page.jobs, *rest.jobs)] == [other, *ids[::-1]]
    assert rest.cursor is None
    previewed = {"role": "operator", "now": mails.now}
    assert mails.store.preview("mails", "cancel", Filter(search="ada"), **previewed) == {("ready", ""): 5}
    chosen = mails.store.preview("mails", "cancel", Filter(search="ada 1"), ids=ids[:2], **previewed)
    assert chosen == {("ready", ""): 1}


def test_more_matches_than_an_index_reads_are_found_newest_first(mails, monkeypatch):
    monkeypatch.setattr("kesin.store.sql.reader.MAX_FOUND", 3)
    ids = [mail(mails, "Ada", n) for n in range(7)]
    mail(mails, "Alan")
    assert found(mails, "ada") == ids[::-1]
    assert found(mails, "6") == [ids[6]]


def test_only_texts_and_whole_numbers_of_declared_fields_are_found_by_their_beginning(mails):
    for value in (True, None, 1.5, ["ada"], {"ada": 1}):
        mail(mails, value)
    mails.enqueue(mails.new(payload='"ada"'), mails.new(payload='["ada"]'))
    mails.enqueue(mails.new(payload='{"to.x":"ada","other":"ada","order":"ada"}'))
    assert found(mails, "ada") == found(mails, "1") == found(mails, "true") == []
    words = mail(mails, " ".join(f"w{n}" for n in range(20)))
    long = mail(mails, "x" * 300)
    assert found(mails, "w7") == [words]
    assert found(mails, "w8") == []
    assert found(mails, "x" * MAX_TERM) == found(mails, "x" * 300) == [long]


def test_a_replaced_payload_is_found_by_its_new_words(oci):
    oci.store.write_listing("oci", Listing("", ("v",)))
    [job] = oci.claim_new_jobs(1, payload='{"v":"before it"}')
    oci.move("ack_failed", job, **error("VALIDATION_FAILED", "VALIDATION"))
    assert found(oci, "before") == [job.id]
    oci.move("correct", job.id, payload='{"v":"afterwards"}', **PRODUCER)
    assert (found(oci, "before"), found(oci, "it"), found(oci, "after")) == ([], [], [job.id])


def test_a_pruned_job_leaves_no_terms(store):
    oci = Scene(store, "mails", task_lifecycle())
    store.write_listing("mails", FIELDS)
    job_id = mail(oci, "Ada")
    kept = mail(oci, "Alan")
    assert oci.apply_one("cancel", job_id, **OPERATOR).result == "moved"
    oci.clock.advance(400 * 86_400)
    [prune] = {move for move in oci.lifecycle.moves if move.prunes and oci.state(job_id) in move.sources}
    assert oci.store.sweep("mails", prune, limit=10, now=oci.now) == 1
    assert (found(oci, "ada"), found(oci, "alan")) == ([], [kept])
    if isinstance(store, SqlStore):
        assert terms(store) == ["alan"]


def test_jobs_that_were_there_before_are_found_after_a_declaration(store):
    scene = Scene(store, "mails", task_lifecycle())
    job_id = mail(scene, "Ada", 42)
    assert store.listing("mails") == Listing()
    assert found(scene, "ada") == []
    store.write_listing("mails", FIELDS)
    assert store.listing("mails") == FIELDS
    assert found(scene, "ada") == found(scene, "42") == [job_id]
    store.write_listing("mails", FIELDS._replace(search=("order.number",)))
    assert (found(scene, "ada"), found(scene, "42")) == ([], [job_id])
    store.write_listing("mails", Listing("{to}"))
    assert found(scene, "42") == []


def test_neither_a_rolled_back_enqueue_nor_a_queue_without_searchable_fields_writes_terms(mails):
    other = Scene(mails.store, "other", task_lifecycle())
    other.create_jobs(3)
    mail(mails, "Ada")
    with rolled_back(mails.store):
        mail(mails, "Alan")
    if isinstance(mails.store, SqlStore):
        assert terms(mails.store) == ["ada"]
    assert found(other, "ada") == found(mails, "alan") == []


# Folding: SQL and Python do the same

TEXTS = st.text(st.sampled_from([*FOLDED, *"abzıi019 ßœ€ж漢"]), max_size=40) | st.text(max_size=250)


@pytest.mark.parametrize("store", ["sqlite-memory", "postgres"], indirect=True)
def test_sql_writes_the_terms_that_python_computes(store):
    scene = Scene(store, "folding", task_lifecycle())
    store.write_listing("folding", Listing("", ("to",)))

    @settings(max_examples=settings.default.max_examples // 2)
    @given(TEXTS | st.integers(-(10**30), 10**30))
    @example("".join(FOLDED))
    @example("  a -- b  ")
    def check(value):
        [outcome] = scene.enqueue(scene.new(payload=canonical_json({"to": value})))
        payload = store.job(outcome.id).payload
        sql = f"SELECT term FROM {store.dialect.table('search_term')} WHERE job_id = "
        written = store._read(sql + store.dialect.param("id"), {"id": outcome.id})
        assert {row[0] for row in written} == terms_of(payload, ["to"])

    check()


@given(TEXTS)
def test_folding_twice_changes_nothing_and_either_case_is_the_same(text):
    assert fold(fold(text)) == fold(text)
    for dotless, dotted in (("I", "İ"), ("ı", "i"), ("I", "ı")):
        assert fold(text.replace(dotless, dotted)) == fold(text.replace(dotted, dotless))


@given(TEXTS)
def test_every_word_finds_its_payload(text):
    for word in fold(text).split(" ")[:8]:
        assert not word or is_found({"to": text}, ["to"], word)
