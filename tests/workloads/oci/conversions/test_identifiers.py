"""Identifiers: normalised and hashed on arrival, and nowhere in clear.

The rules are written here a second time, from the table of Google's documentation and by other
means, and compared over many spellings of the same person.
"""

import hashlib
import json
import logging
import re
import string
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.oci.conversions.conversion import RowDefaults, Unsendable
from kesin.workloads.oci.conversions.identifiers import PHONE_COUNTRIES, checked_row, hash_email, hash_phone
from tests.workloads.oci.fake_google import Wrong, upload_error
from tests.workloads.oci.own_site import ApiSite, OwnSite, ok

EMAIL = "ayse.yilmaz@example.com"
PHONE = "0532 123 45 67"
ANKARA = RowDefaults("north", None, "TRY", enhanced=True, phone_country="TR")


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


def sha(text: str) -> str:
    return digest(text).hex()


def code_of(function: Any, *given: Any) -> str:
    with pytest.raises(Unsendable) as caught:
        function(*given)
    assert str(given[0]).strip("+- ") not in str(caught.value) or len(str(given[0])) < 3
    return caught.value.code


# E-mail addresses


def google_email(text: str) -> str:
    """The rules of Google's documentation, letter by letter."""
    lower = {upper: upper.lower() for upper in string.ascii_uppercase}
    letters = [lower.get(letter, letter) for letter in text.strip()]
    at = letters.index("@")
    local, domain = letters[:at], "".join(letters[at + 1 :])
    if re.fullmatch("(google|g)mail[.]com", domain):
        if "+" in local:
            local = local[: local.index("+")]
        local = [letter for letter in local if letter != "."]
    return "".join(local) + "@" + domain


words = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
locals_ = st.lists(words, min_size=1, max_size=3).map(".".join)
suffixes = st.one_of(st.just(""), words.map(lambda word: f"+{word}"))
domains = st.sampled_from(["gmail.com", "GMAIL.com", "googlemail.com", "Example.com", "posta.TR"])
blanks = st.text(" \t\n\u00a0", max_size=2)


@given(locals_, suffixes, domains, blanks, blanks)
def test_an_address_is_hashed_by_googles_rules(local, suffix, domain, before, after):
    text = f"{before}{local}{suffix}@{domain}{after}"
    assert hash_email(text) == digest(google_email(text)) == hash_email(text.upper())


def test_only_googles_own_mail_ignores_dots_and_what_follows_a_plus():
    assert hash_email("A.Yil.maz+sale@GMail.com") == digest("ayilmaz@gmail.com")
    assert hash_email("a.yilmaz@googlemail.com") == digest("ayilmaz@googlemail.com")
    assert hash_email("a.yilmaz+sale@example.com") == digest("a.yilmaz+sale@example.com")
    assert hash_email("I@EXAMPLE.COM") == digest("i@example.com")


@pytest.mark.parametrize(
    "text",
    [
        *("İLKER@example.com", "ışık@example.com", "ilker@exampleİ.com", "ayşe@example.com"),
        *("ayse yilmaz@example.com", "ayse@example", "@example.com", "ayse@", "ayse@@example.com"),
        *("...@gmail.com", "+sale@gmail.com", "a@b@example.com", "Ayse <a@example.com>", "yok"),
        *(5, True, ["a@example.com"], "a" * 250 + "@example.com", "a@example..com"),
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(text):
    assert code_of(hash_email, text) == "INVALID_EMAIL"


# Phone numbers

# Written by hand a second time: the code, what is dialled before a number at home, its lengths.
EUROPE = {
    "TR": ("+90", "0", {10}),
    "DE": ("+49", "0", {*range(6, 14)}),
    "GB": ("+44", "0", {9, 10}),
    "FR": ("+33", "0", {9}),
    "ES": ("+34", "", {9}),
    "IT": ("+39", "", {*range(6, 12)}),
    "HU": ("+36", "06", {8, 9}),
    "PL": ("+48", "", {9}),
}


@st.composite
def numbers(draw: Any) -> tuple[str, str, str]:
    """A country, a number at home without its prefix, and how it is written there."""
    country = draw(st.sampled_from(sorted(EUROPE)))
    code, _, lengths = EUROPE[country]
    first = draw(st.sampled_from("23456789"))
    length = draw(st.sampled_from(sorted(lengths)))
    national = first + draw(st.text(string.digits, min_size=length - 1, max_size=length - 1))
    return country, national, code


def spaced(draw: Any, digits: str) -> str:
    """The same digits with what people put between them."""
    between = st.text(" -./()\u00a0\u2011", max_size=2)
    return "".join(draw(between) + digit for digit in digits) + draw(between)


@settings(max_examples=settings.default.max_examples // 2)
@given(numbers(), st.data())
def test_a_number_is_the_same_in_all_its_spellings(number, data):
    country, national, code = number
    prefix = EUROPE[country][1]
    expected = digest(code + national)
    draw = data.draw
    assert hash_phone(f"+{spaced(draw, code[1:] + national)}", country) == expected
    assert hash_phone(f"00{spaced(draw, code[1:] + national)}", country) == expected
    assert hash_phone(f"\u202a{code} {national}\u202c", "") == expected
    if prefix:
        assert hash_phone(spaced(draw, prefix + national), country) == expected
        assert hash_phone(f"{code} ({prefix}) {national}", country) == expected


@given(numbers())
def test_a_number_without_prefix_is_read_if_it_reads_one_way(number):
    country, national, code = number
    lengths = EUROPE[country][2]
    digits = code[1:]
    has_code = national.startswith(digits) and len(national) - len(digits) in lengths
    if has_code:
        assert code_of(hash_phone, national, country) == "INVALID_PHONE"
    else:
        assert hash_phone(national, country) == digest(code + national)
    with_code = digits + national
    if len(with_code) in lengths:
        assert code_of(hash_phone, with_code, country) == "INVALID_PHONE"
    else:
        assert hash_phone(with_code, country) == digest(code + national)


def test_turkish_numbers_in_the_ways_people_write_them():
    same = ["0532 123 45 67", "532 123 4567", "+90 532 123 45 67", "0090 532-123-45-67"]
    same += ["905321234567", "+90 (0) 532 123 45 67", "(0532) 123.45.67", "+900532 1234567"]
    assert {hash_phone(text, "TR") for text in same} == {digest("+905321234567")}
    assert hash_phone(905321234567, "TR") == digest("+905321234567")
    assert hash_phone("06 1234 5678", "IT") == digest("+390612345678")  # a zero that belongs to it
    assert hash_phone("+39 06 1234 5678", "TR") == digest("+390612345678")


@pytest.mark.parametrize(
    ("text", "country"),
    [
        *(("0532 123 45 67", ""), ("0532 123 45 6", "TR"), ("532 123 45 67 8", "TR")),
        *(("5,32123E+09", "TR"), ("yok", "TR"), ("-", "TR"), ("+", "TR"), ("00", "TR")),
        *(("+90 532", "TR"), ("+0532 123 45 67", "TR"), ("00532", "TR"), ("+34 012 345 678", "TR")),
        *(("٠٥٣٢١٢٣٤٥٦٧", "TR"), (True, "TR"), (None, "TR"), (5.5, "TR"), ("0", "TR")),
        *(("0532 123 45 67 x1", "TR"), ("+1" + "2" * 20, "TR"), ("++905321234567", "TR")),
    ],
)
def test_what_is_no_number_is_refused_and_not_repeated(text, country):
    assert code_of(hash_phone, text, country) == "INVALID_PHONE"


def test_no_calling_code_begins_another():
    codes = {code for code, _, _ in PHONE_COUNTRIES.values()}
    assert [(a, b) for a in codes for b in codes if a != b and a.startswith(b)] == []
    assert {"TR", "DE", "FR", "GB", "CH", "NO"} <= PHONE_COUNTRIES.keys()


# A row


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_plain_value_leaves_a_row(email, phone):
    row = {"externalId": "x", "email": email, "phone": phone}
    with suppress(Unsendable):
        assert not {"email", "phone"} & checked_row(row, ANKARA).keys()


def test_plain_and_hashed_forms_of_a_person_are_one_row(site: OwnSite):
    site.change_settings(enhanced=True, phone_country="TR")
    [first] = site.post([site.row(1, email=EMAIL, phone=PHONE)])
    hashes = {"hashedEmail": sha(EMAIL).upper(), "hashedPhone": sha("+905321234567")}
    same = [site.row(1, **hashes), site.row(1, email=f" {EMAIL.upper()}", phone="+905321234567")]
    same.append(site.row(1, email=EMAIL, **hashes))
    for result in site.post(same):
        assert (result["result"], result["id"]) == ("duplicate", first["id"])
        assert "differs" not in result
    [other] = site.post([site.row(1, email="other@example.com", phone=PHONE)])
    assert other["result"] == "corrected"


def test_a_bad_identifier_rejects_its_row(site: OwnSite):
    site.change_settings(enhanced=True)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"email": "yok"}, "INVALID_EMAIL"),
        ({"phone": "12"}, "INVALID_PHONE"),
        ({"hashedEmail": "ab"}, "INVALID_HASH"),
        ({"hashedEmail": sha("")}, "INVALID_HASH"),  # of a customer without an address
        ({"hashedPhone": 5}, "INVALID_HASH"),
        ({"email": EMAIL, "hashedEmail": sha("another")}, "INVALID_HASH"),
        ({"hashedEmail": "••••abcd"}, "MASKED_VALUE"),
    ]
    *bad, good = site.post([*(site.row(n, **fields) for n, (fields, _) in enumerate(cases)), site.row(99)])
    assert [(one["result"], one["code"]) for one in bad] == [("rejected", code) for _, code in cases]
    assert good["result"] == "queued"
    for (fields, _), one in zip(cases, bad, strict=True):
        told = {name: value for name, value in one.items() if name not in {"index", "externalId"}}
        assert not any(str(value) in json.dumps(told) for value in fields.values() if value != 5)


def test_a_site_without_enhanced_conversions_keeps_no_identifier(site: OwnSite):
    [result] = site.post([site.row(1, email=EMAIL, phone="x", hashedEmail="y")])
    assert result["result"] == "queued"
    assert not {"hashedEmail", "hashedPhone"} & site.job(result["id"]).payload.keys()


def test_nothing_of_a_person_is_stored_logged_or_shown_in_clear(site: OwnSite, caplog):
    site.change_settings(enhanced=True, phone_country="TR")
    caplog.set_level(logging.DEBUG)
    plain: dict[str, Any] = {"email": EMAIL, "phone": PHONE}
    [failed] = site.fail(1, first=5)
    [job_id] = site.enqueue(1, **plain)
    rejected = site.post([site.row(9, email=EMAIL + " x"), site.row(8, phone=PHONE + "9")])
    columns = "externalId,gclid,conversionName,conversionTime,conversionValue,Email,Phone Number"
    line = f"sale-7,Cj0KCQiA_click-7,Sale,{site.oci.ago(60)},5,{EMAIL},{PHONE}"
    read = ok(site.ingest(f"{columns}\n{line}\n", "text/csv"))["results"]
    acted = site.act("CORRECT", [failed], conversion=plain)
    refused = site.request_action("CORRECT", ids=[failed], conversion={"email": 5, **plain, "x": 1})
    headers = {**site.operator, "content-type": "application/json"}
    bodies: list[Any] = [{"conversion": plain}, {"siteId": site.id, "action": 5, "conversion": plain}]
    for body in (*map(json.dumps, bodies), json.dumps(plain)[:-1]):
        wrong = site.request("POST", "queue-actions", headers, content=body.encode())
        assert wrong.status_code in {400, 422}
        assert EMAIL not in wrong.text
    store: Any = site.oci.store
    tables = ["job", "event", "note", "audit"]
    stored = [str(store._read(f"SELECT * FROM {store.dialect.table(name)}", {})) for name in tables]
    page = site.request("GET", f"dead-letter.csv?siteId={site.id}", site.operator).text
    shown = [str(rejected), str(read), str(acted), refused.text, page, str(site.rows()), caplog.text]
    for text in (*stored, *shown):
        for secret in (EMAIL, PHONE, "5321234567", "ayse.yilmaz"):
            assert secret not in text
    assert site.job(job_id).payload["hashedEmail"] == sha(EMAIL)
    assert site.job(failed).payload["hashedPhone"] == sha("+905321234567")


# A row without a click


def test_an_identifier_alone_does_on_api_channels_and_not_for_a_script(api: ApiSite):
    [none] = api.post([api.row(1, gclid=None, email=EMAIL)])
    assert none["code"] == "MISSING_CLICK_ID"
    api.change_settings(enhanced=True)
    taken, neither = api.post([api.row(1, gclid=None, email=EMAIL), api.row(2, gclid=None)])
    assert (taken["result"], neither["code"]) == ("queued", "MISSING_IDENTIFIER")
    api.change(channel="script")
    [script] = api.post([api.row(3, gclid=None, email=EMAIL)])
    assert script["code"] == "MISSING_CLICK_ID"
    assert api.export() == []
    assert api.job(taken["id"]).error_code == "MISSING_CLICK_ID"


def test_each_channel_sends_identifiers_as_google_asks(make_api):
    ads, manager = make_api("api"), make_api("data_manager")
    for site in (ads, manager):
        site.change_settings(enhanced=True, phone_country="TR")
        rows = [site.row(1, email=EMAIL, phone=PHONE), site.row(2, gclid=None, phone=PHONE)]
        rows += [site.row(3), site.row(4, gclid=None, wbraid="wb-000004", email=EMAIL)]
        assert [result["result"] for result in site.post(rows)] == ["queued"] * 4
    assert ads.turn() == {"COMPLETED": 8}
    came = ads.google.came
    [ingest] = [one.body for one in came if one.path.endswith("events:ingest")]
    [upload] = [one.body for one in came if "uploadClick" in one.path]
    email, phone = sha(EMAIL), sha("+905321234567")
    assert ingest["encoding"] == "HEX"
    assert [event.get("userData") for event in ingest["events"]] == [
        {"userIdentifiers": [{"emailAddress": email}, {"phoneNumber": phone}]},
        {"userIdentifiers": [{"phoneNumber": phone}]},
        None,
        None,
    ]
    assert "adIdentifiers" not in ingest["events"][1]
    own = {"userIdentifierSource": "FIRST_PARTY"}
    assert [row.get("userIdentifiers") for row in upload["conversions"]] == [
        [{"hashedEmail": email, **own}, {"hashedPhoneNumber": phone, **own}],
        [{"hashedPhoneNumber": phone, **own}],
        None,
        None,
    ]
    assert not {"gclid", "wbraid", "gbraid"} & upload["conversions"][1].keys()


def test_identifiers_stay_here_once_the_site_does_without(api: ApiSite):
    api.change_settings(enhanced=True)
    with_click, without = api.post([api.row(1, email=EMAIL), api.row(2, gclid=None, email="b@example.com")])
    api.change_settings(enhanced=None)
    assert api.turn() == {"COMPLETED": 1}
    [request] = [one.body for one in api.google.came if one.body]
    assert "userIdentifiers" not in json.dumps(request)
    assert api.state(with_click["id"]) == "COMPLETED"
    assert api.job(without["id"]).error_code == "MISSING_CLICK_ID"


def test_a_person_without_a_click_on_an_ad_is_delivered_with_the_code(api: ApiSite):
    api.change_settings(enhanced=True)
    ids = [each["id"] for each in api.post([api.row(1, gclid=None, email=EMAIL), api.row(2)])]
    api.google.row_errors = lambda row: [upload_error("CLICK_NOT_FOUND")]
    assert api.turn() == {"COMPLETED": 1, "FAILED": 1}
    assert api.states(ids) == ["COMPLETED", "FAILED"]
    assert {api.job(each).error_code for each in ids} == {"CLICK_NOT_FOUND"}


def test_googles_message_about_a_person_is_masked(api: ApiSite):
    api.change_settings(enhanced=True)
    [result] = api.post([api.row(1, gclid=None, email=EMAIL)])
    quoting = Wrong("conversion_upload_error", "INVALID_USER_IDENTIFIER", "user_identifiers")
    api.google.row_errors = lambda row: [quoting._replace(message=f"bad {sha(EMAIL)}")]
    api.turn()
    assert sha(EMAIL) not in (api.job(result["id"]).error_message or "")
    assert "bad" in (api.job(result["id"]).error_message or "")


def test_two_sales_of_a_person_in_a_second_go_in_two_requests(api: ApiSite):
    api.change_settings(enhanced=True)
    at = api.oci.ago(3_600)
    rows = [api.row(n, gclid=None, email=EMAIL, conversionTime=at) for n in (1, 2)]
    ids = [each["id"] for each in api.post(rows)]
    api.turn()
    sizes = [len(one.body["conversions"]) for one in api.google.came if one.body]
    assert sizes == [1, 1]
    assert api.state(ids[0]) == "COMPLETED"
