"""Links: who may make them, what they open, when they end, and what a changed one opens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from kesin.foundation.encryption import new_key
from kesin.foundation.problems import Forbidden
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import HOUR_S
from kesin.store.metadata import metadata_for
from kesin.web.middleware import HEADERS
from kesin.workloads.pdf import links
from kesin.workloads.pdf.api import download
from kesin.workloads.pdf.links import PdfLinks
from tests.web.client import ADDRESS
from tests.web.conftest import error_of
from tests.workloads.pdf.front import NO_JOB, Front, at_once, opened_front, order
from tests.workloads.pdf.press import TTL_S

BASE = "https://pdf.example.com/kesin"
KEYS = {"secret_keys": new_key("old"), "public_url": BASE + "/"}


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with opened_front(request.param, tmp_path_factory.mktemp("links"), request, **KEYS) as front:
        yield front


@pytest.fixture(scope="module")
def signing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with opened_front("sqlite", tmp_path_factory.mktemp("link"), request, **KEYS) as front:
        yield front


@pytest.fixture
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """One whose clock a test may move."""
    with opened_front("sqlite", tmp_path, request, **KEYS) as front:
        yield front


def link_to(front: Front, who: dict[str, str], job_id: str, **body: Any) -> Any:
    return front.client.post(f"/pdf/jobs/{job_id}/links", json=body, headers=who)


def new_link(front: Front, **body: Any) -> str:
    """The path and query of a link to a new PDF."""
    who = front.owner()
    made = link_to(front, who, front.done(who), **body)
    assert made.status_code == 201, made.text
    return str(made.json()["url"]).removeprefix(BASE)


def opened_link(front: Front, url: str, **headers: str) -> tuple[int, str]:
    """The status, and the code of the problem."""
    response = front.client.get(url, headers=headers)
    is_problem = response.headers.get("content-type") == "application/json"
    return response.status_code, error_of(response)["code"] if is_problem else ""


def test_whoever_has_a_link_gets_the_pdf_without_signing_in(signing):
    who = signing.owner()
    job_id = signing.done(who)
    made = link_to(signing, who, job_id)
    assert (made.status_code, made.headers["cache-control"]) == (201, "private, no-store")
    body = made.json()
    assert body["url"].startswith(f"{BASE}/pdf/links/{job_id}?e=")
    assert body["max_downloads"] is None
    url = body["url"].removeprefix(BASE)
    response = signing.client.get(url)
    assert (response.status_code, response.content) == (200, signing.fetch(who, job_id).content)
    assert response.headers["content-type"] == "application/pdf"
    assert "filename=" in response.headers["content-disposition"]
    assert response.headers["referrer-policy"] == "no-referrer"
    assert (b"referrer-policy", b"no-referrer") in HEADERS
    assert opened_link(signing, url, range="bytes=0-4") == (206, "")
    head = signing.client.request("HEAD", url)
    assert (head.status_code, head.content) == (200, b"")


def test_links_are_audited_but_neither_they_nor_their_signatures_are_written_down(signing, caplog):
    url = new_link(signing, max_downloads=2)
    followed = signing.said(lambda: signing.client.get(url))
    assert [(line.action, line.actor, line.address) for line in followed] == [("pdf.follow_link", "nobody", ADDRESS)]
    lines = [line for line in signing.audit() if line.target and line.target in url]
    assert {line.action for line in lines} >= {"pdf.link", "pdf.follow_link"}
    [signature] = parse_qs(urlsplit(url).query)["s"]
    assert signature not in repr(lines)
    assert signature not in caplog.text
    values = [each.value for each in metadata_for(signing.queue.store).metadata_entries("pdf_links")]
    assert signature not in repr(values)


def test_a_changed_link_opens_nothing_and_a_sound_one_no_other_pdf(signing):
    who = signing.owner()
    other, url = signing.done(who), urlsplit(new_link(signing))
    for parts in (
        *({"e": ends} for ends in ("99999999999", "", "-1", "\0")),
        *({"n": most} for most in ("more", "\0")),
        *({"k": key} for key in ("new", "\udc80")),
        *({"s": signature} for signature in ("A" * 43, "", "ş" * 43)),
    ):
        query = urlencode(dict(parse_qsl(url.query)) | parts, errors="surrogatepass")
        assert opened_link(signing, f"{url.path}?{query}") == (403, "link_invalid"), parts
    assert opened_link(signing, f"{url.path}?{url.query.replace('e=', 'e=%00', 1)}") == (403, "link_invalid")
    for job_id in (other, NO_JOB, "nothing"):  # an unknown job is no other answer
        assert opened_link(signing, f"/pdf/links/{job_id}?{url.query}") == (403, "link_invalid")
    assert opened_link(signing, f"/pdf/links/{other}") == (403, "link_invalid")


def test_a_job_without_a_pdf_has_no_link(signing):
    who = signing.owner()
    assert link_to(signing, who, signing.submit(who)).status_code == 409
    signing.engine.fails("TEMPLATE_ERROR")
    response = link_to(signing, who, signing.done(who))
    assert (response.status_code, error_of(response)["code"]) == (409, "TEMPLATE_ERROR")


def test_a_wrong_field_is_named(signing):
    for field, value in (("expires_in", 0), ("expires_in", 604_801), ("max_downloads", 0), ("max_downloads", "x")):
        response = link_to(signing, signing.owner(), NO_JOB, **{field: value})
        assert response.status_code == 422, field
        assert [each["field"] for each in error_of(response)["details"]["fields"]] == [field], field


def test_a_link_ends_when_it_says_and_not_after_its_pdf(own):
    me = own.owner()
    job_id = own.done(me)
    own.clock.advance(TTL_S - HOUR_S - 10)
    short, long = (link_to(own, me, job_id, expires_in=s).json() for s in (60, 7 * TTL_S))
    assert long["expires_at"] > short["expires_at"]
    own.clock.advance(59)
    assert opened_link(own, short["url"].removeprefix(BASE)) == (200, "")
    own.clock.advance(1)
    assert opened_link(own, short["url"].removeprefix(BASE)) == (410, "link_ended")
    own.clock.advance(HOUR_S - 50)
    assert opened_link(own, long["url"].removeprefix(BASE)) == (410, "link_ended")


def test_a_download_that_fails_is_not_counted_and_a_pdf_that_is_gone_is_410(own):
    me = own.owner()
    job_id = own.done(me)
    url = link_to(own, me, job_id, max_downloads=2).json()["url"].removeprefix(BASE)
    for _ in range(2):
        own.shelf.down = True
        assert opened_link(own, url) == (503, "STORAGE_DOWN")
        own.shelf.down = False
    assert opened_link(own, url) == (200, "")
    own.burn(job_id)
    assert opened_link(own, url) == (410, "ARTIFACT_GONE")


def test_downloads_are_counted_one_at_a_time_on_every_database(each):
    url = new_link(each, max_downloads=3)
    assert each.client.request("HEAD", url).status_code == 200
    results = at_once([lambda: opened_link(each, url, range="bytes=0-0")] * 6)
    assert sorted(results) == [(200, "")] * 3 + [(410, "link_ended")] * 3
    assert opened_link(each, url) == (410, "link_ended")


def test_a_link_ends_and_its_counter_is_pruned_on_every_database(each):
    me = each.owner()
    job_id = each.done(me)
    limited = link_to(each, me, job_id, expires_in=60, max_downloads=2).json()["url"]
    endless = link_to(each, me, job_id).json()["url"]
    links_of = PdfLinks(each.settings, each.queue)
    for url, code in ((limited, (200, "")), (endless, (200, "")), (endless, (200, ""))):
        assert opened_link(each, url.removeprefix(BASE)) == code
    [(left, _, allowed)] = links_of.counted(job_id)
    assert (left, allowed) == (1, 2)
    each.clock.advance(60)
    assert opened_link(each, limited.removeprefix(BASE)) == (410, "link_ended")
    assert opened_link(each, endless.removeprefix(BASE)) == (200, "")
    assert links_of.counted(job_id) == []
    assert (links_of.prune(), links_of.prune()) == (1, 0)
    each.beat()


def test_counters_are_bounded_and_pruned_after_the_last_link_of_a_pdf(own, monkeypatch):
    monkeypatch.setattr(links, "MAX_COUNTED", 2)
    me = own.owner()
    job_id = own.done(me)
    for seconds in (60, 120):
        assert link_to(own, me, job_id, expires_in=seconds, max_downloads=1).status_code == 201
    assert link_to(own, me, job_id, max_downloads=1).status_code == 409
    assert link_to(own, me, job_id).status_code == 201
    pruner = PdfLinks(own.settings, own.queue)
    for seconds, pruned in ((0, 0), (60, 0), (60, 1), (0, 0)):
        own.clock.advance(seconds)
        assert pruner.prune() == pruned


def test_without_a_key_ring_the_setting_is_named(front, me):
    response = link_to(front, me, front.done(me))
    assert (response.status_code, error_of(response)["code"]) == (503, "no_secret_keys")
    assert "KESIN_SECRET_KEYS" in error_of(response)["message"]
    assert opened_link(front, f"/pdf/links/{NO_JOB}?e=1&k=a&s=b")[0] == 403


def test_a_second_key_keeps_old_links_and_removing_the_old_one_ends_them(own):
    me = own.owner()
    job_id = own.done(me)
    job, old = own.seen(job_id), str(KEYS["secret_keys"])
    now_s = own.queue.now() / 1e6
    query = dict(parse_qsl(urlsplit(link_to(own, me, job_id).json()["url"]).query))
    both, new = (Settings(secret_keys=keys) for keys in (f"{new_key('new')},{old}", new_key("new")))
    assert PdfLinks(both, own.queue).require_valid(job, links.LinkQuery(**query)) == job
    with pytest.raises(Forbidden):
        PdfLinks(new, own.queue).require_valid(job, links.LinkQuery(**query))
    relative, _ = PdfLinks(new, own.queue).create(job, 60, since_s=now_s)
    assert relative.startswith(f"/pdf/links/{job_id}?")


HOOK = {"webhook_url": "https://hooks.example.com/x"}
HOOKS = {"pdf_webhooks": r"https://hooks\.example\.com/.*", "pdf_webhook_secret": "x" * 16}


@pytest.mark.parametrize(
    ("settings", "status", "code"),
    [(KEYS, 202, ""), ({"secret_keys": new_key()}, 422, "invalid"), ({"public_url": BASE}, 503, "no_secret_keys")],
)
def test_a_link_in_a_webhook_is_promised_only_if_it_can_be_made(request, tmp_path, settings, status, code):
    with opened_front("sqlite", tmp_path, request, **HOOKS, **settings) as front:
        response = front.post(front.owner(), order(**HOOK, link_ttl=60))
        assert response.status_code == status, response.text
        if code:
            assert error_of(response)["code"] == code
            assert ("link_ttl" in response.text) == (status == 422)
        else:
            [waiting] = front.service.queues["pdf_webhooks"].jobs().jobs
            assert waiting.payload["link_s"] == 60


def test_a_link_ttl_without_a_webhook_or_of_more_than_a_week_is_refused_by_name(front, me):
    for more in ({"link_ttl": 60}, {**HOOK, "link_ttl": 604_801}):
        response = front.post(me, order(**more))
        assert response.status_code == 422, more
        assert [each["field"] for each in error_of(response)["details"]["fields"]] == ["link_ttl"], more


def test_a_bucket_gives_the_file_itself_for_a_minute(own, monkeypatch):
    monkeypatch.setattr(own.shelf._storage, "presign", lambda key, s: f"https://s3/{key}?for={s}")
    url = new_link(own, max_downloads=1)
    assert own.client.request("HEAD", url).status_code == 200
    response = own.client.get(url, follow_redirects=False)
    assert response.status_code == 302
    assert response.headers["location"].startswith("https://s3/pdfs/")
    assert response.headers["location"].endswith(f"?for={download.REDIRECT_S}")
    assert response.headers["cache-control"] == "no-store"
    assert opened_link(own, url) == (410, "link_ended")
    who = own.owner()
    assert own.fetch(who, own.done(who)).status_code == 200  # its owner gets the bytes
