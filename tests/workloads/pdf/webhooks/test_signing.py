"""Our signatures are those of Standard Webhooks, and nobody else's pass for them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from kesin.foundation.clock import wall_clock_us
from kesin.workloads.pdf.webhooks.delivery import (
    TOLERANCE_S,
    derive_secret,
    signature_headers,
    verify,
)

SECRET = derive_secret("the master of all secrets", "key:ayse")
AT_S = 1_700_000_000
BODY = '{"şehir":"İzmir"}'.encode()


def now_s() -> int:
    return wall_clock_us() // 1_000_000


def test_the_published_example_is_signed_as_published():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signature_headers(
        secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(st.text(min_size=1), st.uuids().map(str), st.text())
def test_the_reference_library_takes_what_we_sign(owner, message_id, text):
    secret = derive_secret("the master of all secrets", owner)
    body = text.encode("utf-8", "replace")
    Webhook(secret).verify(
        body, signature_headers(secret, message_id, now_s(), body), json_parse=False
    )


@given(st.uuids().map(str), st.text(st.characters(codec="utf-8")))
def test_we_take_what_the_reference_library_signs(message_id, text):
    at = datetime.fromtimestamp(AT_S, UTC)
    headers = {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(AT_S),
        "Webhook-Signature": Webhook(SECRET).sign(message_id, at, text),
    }
    assert verify(SECRET, headers, text.encode(), now_s=AT_S + 1)


def test_a_changed_header_does_not_verify():
    headers = signature_headers(SECRET, "id", AT_S, BODY)
    assert verify(SECRET, headers, BODY, now_s=AT_S)
    for name, values in {
        "webhook-id": ["other", ""],
        "webhook-timestamp": [
            str(AT_S + 1), "", "yesterday", f"{AT_S}.0", "\u0661700000000",
        ],
        "webhook-signature": ["", "v1,", "v1,ı", "nonsense"],
    }.items():  # fmt: skip
        for value in values:
            assert not verify(SECRET, headers | {name: value}, BODY, now_s=AT_S), (name, value)


def test_another_body_secret_or_version_does_not_fit():
    headers = signature_headers(SECRET, "id", AT_S, BODY)
    other = derive_secret("the master of all secrets", "key:omer")
    assert not verify(SECRET, headers, BODY + b" ", now_s=AT_S)
    assert not verify(other, headers, BODY, now_s=AT_S)
    second = headers["webhook-signature"].replace("v1,", "v2,")
    assert not verify(SECRET, headers | {"webhook-signature": second}, BODY, now_s=AT_S)


def test_one_of_several_signatures_is_enough():
    headers = signature_headers(SECRET, "id", AT_S, BODY)
    other = signature_headers(derive_secret("an older master secret", "key:ayse"), "id", AT_S, BODY)
    both = f"{other['webhook-signature']} {headers['webhook-signature']}"
    assert verify(SECRET, headers | {"webhook-signature": both}, BODY, now_s=AT_S)


def test_a_message_is_valid_for_five_minutes():
    headers = signature_headers(SECRET, "id", AT_S, BODY)
    for sign in (1, -1):
        assert verify(SECRET, headers, BODY, now_s=AT_S + sign * TOLERANCE_S)
        assert not verify(SECRET, headers, BODY, now_s=AT_S + sign * (TOLERANCE_S + 1))


def test_without_a_time_the_present_is_meant():
    assert verify(SECRET, signature_headers(SECRET, "id", now_s(), BODY), BODY)
    old = signature_headers(SECRET, "id", now_s() - timedelta(hours=1).seconds, BODY)
    assert not verify(SECRET, old, BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(BODY, old)


def test_no_two_owners_and_no_two_masters_share_a_secret():
    secrets = {
        derive_secret(master, owner)
        for master in ("the master of all secrets", "another master secret")
        for owner in ("key:ayse", "key:omer", "key:ayse ", "user:ayse")
    }
    assert len(secrets) == 8
    assert all(item.startswith("whsec_") for item in secrets)


def test_a_secret_that_is_none_is_refused():
    with pytest.raises(ValueError, match="whsec_"):
        signature_headers("whsec_*", "id", AT_S, BODY)
