from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from kesin.foundation.clock import ManualClock
from kesin.workloads.oci.google.credentials import MAX_CACHED_TOKENS, AccessTokens, TokenRefused
from kesin.workloads.oci.google.http import BoundedHttpClient
from tests.workloads.oci.fake_google import Whole, http_client
from tests.workloads.oci.google_faults import cut_off, hang_up, nonsense, silence


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def tokens(google, clock):
    with http_client(5, clock.monotonic) as client:
        yield AccessTokens(client, google.token_url)


def test_a_token_is_kept_until_a_minute_before_its_end(google, tokens, clock):
    credentials = google.credentials()
    assert tokens.get(credentials) == "access-1"
    clock.advance(3_599 - 61)
    assert tokens.get(credentials) == "access-1"
    clock.advance(1)
    assert tokens.get(credentials) == "access-2"
    form = {
        "grant_type": "refresh_token",
        "client_id": "client.apps.example",
        "client_secret": "the-client-secret",
        "refresh_token": "the-refresh-token",
    }
    assert google.token_requests == [form, form]


def test_a_forgotten_token_is_fetched_anew(google, tokens):
    credentials = google.credentials()
    tokens.get(credentials)
    tokens.forget(credentials, "access-1")
    assert tokens.get(credentials) == "access-2"
    tokens.forget(credentials, "access-1")  # a slow thread complains of an older one
    assert tokens.get(credentials) == "access-2"
    tokens.forget(credentials, "access-2")
    assert tokens.get(credentials) == "access-3"


def test_every_credential_has_its_own_token_and_the_account_makes_no_difference(google, tokens):
    one = google.credentials(client_id="one")
    assert tokens.get(one) == "access-1"
    assert tokens.get(google.credentials(client_id="two")) == "access-2"
    assert tokens.get(google.credentials(client_id="one", customer_id="4242424242")) == "access-1"


def test_of_many_threads_one_fetches(google, tokens):
    credentials = google.credentials()
    with ThreadPoolExecutor(12) as pool:
        fetched = list(pool.map(tokens.get, [credentials] * 12))
    assert fetched == ["access-1"] * 12
    assert len(google.token_requests) == 1


def test_wrong_credentials_are_refused_for_good(google, tokens):
    for status, error, code in (
        (400, "invalid_grant", "INVALID_GRANT"),
        (400, "unauthorized_client", "TOKEN_REFUSED"),
        (401, "invalid_client", "TOKEN_REFUSED"),
        (403, "org", "TOKEN_REFUSED"),
    ):
        google.tokens_then(Whole(status, {"error": error}))
        with pytest.raises(TokenRefused) as caught:
            tokens.get(google.credentials())
        assert (caught.value.code, caught.value.message, caught.value.transient) == (code, error, False)


def test_whatever_may_pass_is_transient_and_the_next_try_works(google, clock):
    for answer in (
        Whole(500),
        Whole(503, {"error": "backend"}),
        Whole(429, {"error": "rate_limit_exceeded"}),
        Whole(400, {"error": "temporarily_unavailable"}),
        Whole(400, b"<html>a proxy</html>"),
        Whole(404),
        Whole(200, b"no json"),
        Whole(200, []),
        Whole(200, {"access_token": 5}),
        Whole(302, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
        *(hang_up, cut_off, nonsense),
    ):
        with http_client(5, clock.monotonic) as client:
            tokens = AccessTokens(client, google.token_url)
            google.tokens_then(answer)
            with pytest.raises(TokenRefused) as caught:
                tokens.get(google.credentials())
            assert (caught.value.transient, caught.value.code) == (True, "TOKEN_UNAVAILABLE"), answer
            assert tokens.get(google.credentials()).startswith("access-")


def test_a_silent_endpoint_is_not_waited_for(google, clock):
    google.tokens_then(silence)
    with http_client(0.1, clock.monotonic) as hasty:
        tokens = AccessTokens(hasty, google.token_url)
        with pytest.raises(TokenRefused, match="TOKEN_UNAVAILABLE"):
            tokens.get(google.credentials())


@pytest.mark.parametrize("life", [None, "3599", -5, True, 1e300])
def test_a_token_that_does_not_tell_its_life_is_kept_for_minutes(google, tokens, clock, life):
    google.token_life_s = life
    tokens.get(google.credentials())
    clock.advance(200)
    assert tokens.get(google.credentials()) == "access-1"
    clock.advance(100)
    assert tokens.get(google.credentials()) == "access-2"


def test_no_secret_and_no_token_is_ever_shown(google, tokens):
    credentials = google.credentials(client_secret="s3cret", refresh_token="r3fresh")
    google.tokens_then(Whole(400, {"error": "invalid_grant", "error_description": "r3fresh of s3cret is bad"}))
    with pytest.raises(TokenRefused) as caught:
        tokens.get(credentials)
    token = tokens.get(google.credentials())
    shown = f"{caught.value!r} {caught.value} {caught.value.message} {tokens!r} {vars(tokens)}"
    assert [text for text in ("s3cret", "r3fresh", token) if text in shown] == []
    assert caught.value.message == "invalid_grant: … of … is bad"


def test_ended_tokens_do_not_pile_up(google, tokens, clock):
    for number in range(MAX_CACHED_TOKENS):
        tokens._entry(google.credentials(client_id=f"old-{number}"))
    tokens.get(google.credentials())
    assert len(tokens._cache) == 1


def test_threads_that_begin_together_share_their_connections(clock):
    client, together = BoundedHttpClient(5, monotonic=clock.monotonic), Barrier(4)

    def begin(_thread):
        together.wait()
        return client.client

    with ThreadPoolExecutor(4) as threads:
        clients = {*threads.map(begin, range(4))}
    with closing(client.client):
        assert clients == {client.client}
