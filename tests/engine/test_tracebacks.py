"""The traceback of a handler is stored with the failure: bounded, without secrets."""

from __future__ import annotations

from functools import partial
from typing import Any

from kesin import Done, Failed, Job, Queue, Worker
from kesin.engine import results
from kesin.engine.results import MAX_TRACEBACK
from kesin.foundation.messages import decode_note, recorded_traceback
from tests.engine.conftest import fill


def note_of(queue: Queue, handler: Any, **options: Any) -> str | None:
    [job_id] = fill(queue, 1)
    Worker(queue, **({"handler": handler} | options)).drain()
    return queue.events(job_id)[-1].note


def stumble(_job: Job) -> None:
    secret = "a local variable"
    raise LookupError("no row" if secret else "")


def test_a_failed_job_has_the_traceback_of_its_handler(queue: Queue):
    note = note_of(queue, stumble)
    assert decode_note(note) is None, "the note itself does not show it"
    text = recorded_traceback(note)
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("LookupError: no row")
    assert "in stumble" in text
    assert "worker_thread.py" not in text
    assert 'File "engine/test_tracebacks.py", line ' in text  # the same on every machine
    assert "a local variable" not in text.replace('secret = "a local variable"', "")
    note = note_of(queue, None, batch_handler=lambda jobs: stumble(jobs[0]))
    assert "in stumble" in recorded_traceback(note)


def test_a_traceback_is_bounded_and_keeps_both_ends(queue: Queue):
    def shout(_job: Job) -> None:
        raise LookupError("x" * 100_000 + "end")

    text = recorded_traceback(note_of(queue, shout))
    assert len(text) < MAX_TRACEBACK + 10
    assert "in shout" in text
    assert text.endswith("xend")


def test_of_a_huge_error_only_what_may_be_stored_is_searched_for_secrets(queue, monkeypatch):
    searched: list[int] = []

    def recording(mask: Any, text: str) -> Any:
        searched.append(len(text))
        return mask(text)

    for name in ("mask_text", "mask_credentials"):
        monkeypatch.setattr(results, name, partial(recording, getattr(results, name)))

    def shout(_job: Job) -> None:
        raise LookupError("password=s3same " + "x" * 8_000_000 + " password=s3same")

    note = note_of(queue, shout)
    assert len(searched) == 2
    assert max(searched) < 11 * MAX_TRACEBACK
    assert "s3same" not in (note or "")
    assert recorded_traceback(note).endswith("••••")


SECRETS = (
    "cannot connect to postgresql://shop:s3same@db/shop",
    "login failed: password=s3same for shop",
    "{'api_key': 's3same', 'user': 'shop'}",
    "GET /orders?access_token=s3same&page=2",
    "SMTP_PASSWORD: s3same",
    "password='a b, s3same) & more'",
    '{"client_secret": "GOCSPX-a)b;s3same"}',
    "Authorization: Basic s3same",
    "redis://default:with/s3same@cache",
    "refused: Bearer s3same.def.ghi for ayse@example.com",
)


def test_passwords_and_tokens_of_an_exception_are_stored_nowhere_and_a_sentence_about_one_stays_whole(queue: Queue):
    def connect(_job: Job) -> None:
        raise LookupError(text)

    for text in SECRETS:
        note = note_of(queue, connect)
        job = queue.jobs().jobs[0]
        assert "LookupError" in recorded_traceback(note)
        assert "s3same" not in f"{note}{job}{queue.events(job.id)}", text
        assert "ayse@example.com" not in (note or "")
    text = "invalid token: expected 5 parts"
    note_of(queue, connect)
    assert queue.jobs().jobs[0].error_message == text


def test_a_failure_that_was_meant_has_none(queue: Queue):
    def refuse(_job: Job) -> None:
        raise Failed("BUSY", "come back")

    assert recorded_traceback(note_of(queue, refuse)) == ""
    assert recorded_traceback(note_of(queue, lambda _job: Done(1))) == ""
    assert recorded_traceback('"traceback"') == recorded_traceback(None) == ""
