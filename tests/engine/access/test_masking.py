"""Personal data and secrets are covered by the names of their fields, whatever is in them."""

from __future__ import annotations

import json

from kesin.engine.access.masking import MASK, SAME_LOOK_S, Masking, RecentLooks, find_masked, is_private, mask_text
from kesin.foundation.messages import Message
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.records import Event
from kesin.web.dashboard.frame.formatting import pretty
from tests.tables import table

mask = Masking().value
EMPTY_JOB = Job(*[None] * len(Job._fields))  # type: ignore[arg-type]
EMPTY_EVENT = Event(*[None] * len(Event._fields))  # type: ignore[arg-type]


@table(
    "name",
    [
        "phone", "customer_phone", "phoneNumber", "Telefon", "GSM", "email", "e-mail", "E_Posta",
        "gclid", "wbraid", "clickId", "token", "refresh_token", "accessToken", "client_secret",
        "password", "Authorization", "x-api-key", "apiKey", "Set-Cookie", "customer_name",
        "first_name", "Müşteri", "adres", "iban", "tckn", "ip",
    ],
)  # fmt: skip
def test_a_field_of_this_name_is_private(name):
    assert is_private(name)


@table("name", ["order_id", "externalId", "template", "value", "currency", "name", "width", "keys", "skip"])
def test_a_field_of_this_name_is_not(name):
    assert not is_private(name)


def test_what_is_private_is_covered_however_deep():
    given = {"rows": [{"customer": {"name": "Ayşe", "phones": ["0532 000 00 01"]}, "n": 3}]}
    shown = mask(given)
    assert shown == {"rows": [{"customer": {"name": MASK, "phones": [f"{MASK}0 01"]}, "n": 3}]}
    assert "Ayşe" not in json.dumps(shown, ensure_ascii=False)
    assert mask({"gclid": "Cj0KCQiA1234567890"}) == {"gclid": f"{MASK}7890"}, "so that two can be distinguished"
    assert mask({"password": "short"}) == {"password": MASK}
    nothing = {"phone": None, "email": "", "token": True}
    assert mask(nothing) == nothing
    assert len(pretty("x" * 200_000)) < 110_000, "what is very long is shown from its beginning"


@table(
    "text",
    [
        "no mailbox ayse@example.com here",
        "called +90 532 000 00 01 twice",
        "sent Authorization: Bearer abc.def-ghi",
        "kesin_abcdefgh_xxxxxxxxxxxxxxxxxxxx",
        "gclid=Cj0KCQiA is cut",
    ],
)
def test_in_running_text_only_what_nobody_mistakes_is_covered(text):
    told = mask_text(text)
    assert told is not None
    assert MASK in told
    assert not [part for part in ("ayse@", "532", "abc.def", "xxxx", "Cj0K") if part in told]


def test_plain_text_stays_and_a_message_is_covered_in_its_values_or_as_a_whole():
    for plain in ("The gclid could not be parsed.", "order 2026-11-15 12:00", "+1 of 3", None):
        assert mask_text(plain) == plain
    text = mask_text(Message("gclid=%(click)s is cut", click="Cj0KCQiA"))  # it spans sentence and value
    assert (text, isinstance(text, Message)) == (f"{MASK} is cut", False)
    message = mask_text(Message("no mailbox %(name)s here", name="ayse@example.com"))
    assert isinstance(message, Message)
    assert message.values == {"name": MASK}


def test_what_lies_very_deep_is_covered_in_its_text():
    deep: object = {"email": "ayse@example.com"}
    for _ in range(200):
        deep = [deep]
    assert "ayse@" not in str(mask(deep))


def test_a_workload_adds_names_of_its_own_with_all_that_is_in_them():
    masking = Masking({"Shoe-Size", "variables"})
    given = {"shoeSize": 42, "variables": {"a": ["text", 1, None]}, "name": "kept"}
    assert masking.value(given) == {"shoeSize": MASK, "variables": {"a": [MASK, MASK, None]}, "name": "kept"}


def test_what_lies_too_deep_to_be_read_is_masked_as_a_whole():
    deep: object = {"colour": "red"}
    for _ in range(200):
        deep = [deep]
    assert mask(deep) == MASK


@table(
    ("message", "shown"),
    [
        ("row 1: Cj0KCQiA_click-of-ayse is unknown", f"row 1: {MASK}ayse is unknown"),
        ("'EAIaIQobChMI', bad", f"'{MASK}ChMI', bad"),
        ("aB3aB3aB3aB3aB3aB3aB;next", f"{MASK}B3aB;next"),
    ],
)
def test_a_click_id_of_another_job_is_masked_in_an_error_message(message: str, shown: str):
    job = EMPTY_JOB._replace(error_message=message, dedup_key="Sale-2026-11-15-0000042")
    note = json.dumps({"traceback": f"ValueError: {message}"})
    events = [EMPTY_EVENT._replace(error_message=message, note=note)]
    masked, [event], _ = Masking().history(job, events)
    assert (masked.error_message, event.error_message) == (shown, shown)
    assert json.loads(event.note or "")["traceback"] == f"ValueError: {shown}"
    assert masked.dedup_key == job.dedup_key


@table(
    "message",
    [
        "UNPARSEABLE_GCLID_IN_REQUEST_2026",
        "ConversionPrecedesClickException at line 200",
        "job 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b was lost",
        "no XML for 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b_GOVDE_Beyaz_18mm",
        "order k0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_codes_names_and_our_own_ids_stay_in_an_error_message(message: str):
    assert Masking().job(EMPTY_JOB._replace(error_message=message)).error_message == message


def test_a_masked_text_is_found_by_its_path():
    assert find_masked({"rows": [{"phone": "0555"}, {"phone": f"{MASK}1234"}]}) == "rows[1].phone"
    assert find_masked({"rows": ["•", "...", None, 3]}) is None


def test_a_list_that_refreshes_is_a_new_look_after_a_while_and_for_another_actor():
    looks = RecentLooks()
    assert looks.new("ayse", ["a", "b"], 0) == ["a", "b"]
    assert looks.new("ayse", ["b", "c"], 1) == ["c"]
    assert looks.new("can", ["b"], 1) == ["b"]
    assert looks.new("ayse", ["b"], SAME_LOOK_S * SECOND_US) == ["b"]
