"""Our signatures are those of Standard Webhooks, and nobody else's pass for them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from kesin.foundation.clock import wall_clock_us
from kesin.workloads.pdf.webhooks.worker import derive_secret, signature_headers

SECRET = derive_secret("the master of all secrets", "key:ayse")
AT_S = 1_700_000_000
BODY = '{"şehir":"İzmir"}'.encode()


def now_s() -> int:
    return wall_clock_us() // 1_000_000


def test_the_published_example_is_signed_as_published():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signature_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(st.text(min_size=1), st.uuids().map(str), st.text())
def test_the_reference_library_takes_what_we_sign(owner, message_id, text):
    secret = derive_secret("the master of all secrets", owner)
    body = text.encode("utf-8", "replace")
    Webhook(secret).verify(body, signature_headers(secret, message_id, now_s(), body), json_parse=False)


def test_a_changed_header_does_not_verify():
    headers = signature_headers(SECRET, "id", now_s(), BODY)
    Webhook(SECRET).verify(BODY, headers)
    for name, value in {
        "webhook-id": "other",
        "webhook-timestamp": str(now_s() + 1),
        "webhook-signature": headers["webhook-signature"].replace("v1,", "v2,"),
    }.items():
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(BODY, headers | {name: value})


def test_another_body_secret_or_an_old_time_does_not_fit():
    headers = signature_headers(SECRET, "id", now_s(), BODY)
    other = derive_secret("the master of all secrets", "key:omer")
    old = signature_headers(SECRET, "id", now_s() - timedelta(hours=1).seconds, BODY)
    for secret, body, given_headers in ((SECRET, BODY + b" ", headers), (other, BODY, headers), (SECRET, BODY, old)):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, given_headers)


def test_no_two_owners_and_no_two_masters_share_a_secret():
    secrets = {
        derive_secret(master, owner)
        for master in ("the master of all secrets", "another master secret")
        for owner in ("key:ayse", "key:omer", "key:ayse ", "user:ayse")
    }
    assert len(secrets) == 8
    assert all(item.startswith("whsec_") for item in secrets)
