"""OCI Control: a file of rows is shown first and then queued, and rows are summed by day."""

import hashlib
import json
import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

from kesin.foundation.clock import iso
from kesin.workloads.common import stores
from kesin.workloads.oci import operations
from tests.web.dashboard.workloads.control_page import PAGE, ROOT, ControlPage

ISTANBUL = ZoneInfo("Europe/Istanbul")


def csv_file(control: ControlPage, *amounts: str, name: str = "sale") -> dict[str, Any]:
    """A file as Excel writes it in Turkey."""
    at = datetime.fromtimestamp(control.context.queue.now() / 1_000_000, ISTANBUL)
    when = (at - timedelta(hours=1)).strftime("%d.%m.%Y %H:%M")
    lines = ["Order ID;Google Click ID;Conversion Name;Conversion Time;Conversion Value"]
    lines += [f"{name}-{n};Cj0KCQiA{n:06d}abcDEF;Satış;{when};{a}" for n, a in enumerate(amounts)]
    return {"file": ("a.csv", "\r\n".join(lines).encode("cp1254"), "text/csv")}


def digest_in(page: str) -> str:
    return re.findall(r'name="digest" value="([0-9a-f]{64})"', page)[0]


def test_a_file_is_shown_first_and_queued_when_it_comes_again_with_its_digest(control):
    control.world.accounts.set_site_settings(ROOT, "north", "oci", {"locale": "tr"})
    files = csv_file(control, "1.500", "1.250,50", "x")
    shown = control.post("/import", files=files).text
    for text in ("Windows-1254", "semicolon", "Google Click ID → gclid", "dd.mm.yyyy", "Satış"):
        assert text in shown
    assert "2,750.5 TRY" in shown
    assert re.search(r"INVALID_CONVERSION_VALUE</span>.*</td><td class=\"number\">1</td><td>4</td>", shown)
    assert "Cj0KCQiA" not in shown
    assert "Import 2 rows" in shown
    assert control.context.queue.jobs().jobs == []
    done = control.post("/import", files=files, data={"digest": digest_in(shown)}).text
    assert "3 rows read: 2 queued, 0 corrected, 0 already known, 1 refused." in done
    values = sorted(job.payload["conversionValue"] for job in control.context.queue.jobs().jobs)
    assert values == [1250.5, 1500]
    again = control.post("/import", files=files).text
    assert "<dt>already known</dt><dd>2</dd>" in again
    again = control.post("/import", files=files, data={"digest": digest_in(again)}).text
    assert "0 queued, 0 corrected, 2 already known" in again
    assert len(control.context.queue.jobs().jobs) == 2
    [line] = [line for line in control.world.audit() if line.action == "oci.import"][-1:]
    assert json.loads(line.details) == {"duplicate": 2, "rejected": 1}


def test_another_file_or_another_setting_is_not_what_was_shown(control):
    files = csv_file(control, "5")
    digest = digest_in(control.post("/import", files=files).text)
    other = control.post("/import", files=csv_file(control, "6"), data={"digest": digest}).text
    assert "Nothing was queued" in other
    control.world.accounts.set_site_settings(ROOT, "north", "oci", {"locale": "tr"})
    changed = control.post("/import", files=files, data={"digest": digest}).text
    assert "Nothing was queued" in changed
    assert control.context.queue.jobs().jobs == []
    assert "1 queued" in control.post("/import", files=files, data={"digest": digest_in(changed)}).text


def test_a_file_that_cannot_be_read_says_why_and_unknown_columns_can_be_ignored(control):
    def send(content: bytes, **data: str) -> str:
        files = {"file": ("a.csv", content, "text/csv")}
        return str(control.post("/import", files=files, data=data).text)

    assert "CSV UTF-8" in send(b"PK\x03\x04\x00\x00")
    assert "The file has no rows" in send(b"")
    assert "must name the columns" in send(b"a,b\n1,2\n")
    content = csv_file(control, "5")["file"][1].replace(b"Order ID;", b"Temsilci;Order ID;")
    content = content.replace(b"sale-", b"Ali;sale-")
    refused = send(content)
    assert "&#39;Temsilci&#39;" in refused
    assert 'name="ignoreColumns" value="Temsilci">Ignore these columns' in refused
    shown = send(content, ignoreColumns="Temsilci")
    assert "Import 1 row" in shown
    assert 'value="Temsilci" hx-swap-oob="true"' in shown
    assert "1 queued" in send(content, ignoreColumns="Temsilci", digest=digest_in(shown))


def test_plain_identifiers_of_a_file_are_shown_nowhere_and_kept_nowhere(control):
    settings = {"enhanced": True, "phone_country": "TR", "conversion_name": "Satış"}
    control.world.accounts.set_site(ROOT, "north", channel="api")
    control.world.accounts.set_site_settings(ROOT, "north", "oci", settings)
    at = iso(control.world.clock.now())
    head = "Email,Phone Number,Conversion Time,Conversion Value"
    rows = f"{head}\nece@example.com,0532 111 22 33,{at},5\n"
    files = {"file": ("a.csv", rows.encode(), "text/csv")}
    shown = control.post("/import", files=files).text
    done = control.post("/import", files=files, data={"digest": digest_in(shown)}).text
    assert "1 queued" in done
    [job] = control.context.queue.jobs().jobs
    assert job.payload["hashedEmail"] == hashlib.sha256(b"ece@example.com").hexdigest()
    stored = repr([*control.world.audit(), job, *control.context.queue.events(job.id)])
    for text in (shown, done, stored):
        assert "ece@example.com" not in text
        assert "111 22 33" not in text


def test_sums_by_day_are_of_whole_days_and_earlier_ones_follow(control, monkeypatch):
    monkeypatch.setattr(stores, "MAX_PAGE", 1)
    monkeypatch.setattr(operations, "SUMMED_ROWS", 3)
    for n, what in ((2, "a"), (2, "b")):
        control.rows(n, what)
        control.world.clock.advance(86_400)
        control.forget_sessions()
    newest = control.get("?part=sums").text
    assert re.findall(r'<td class="number">(.)</td>', newest) == ["2"]
    [following] = re.findall(r'hx-get="([^"]+)"', newest)
    earlier = control.get(unescape(following).removeprefix(PAGE)).text
    assert re.findall(r'<td class="number">(.)</td>', earlier) == ["2"]
    assert "hx-get" not in earlier
    monkeypatch.setattr(operations, "SUMMED_ROWS", 1)
    assert re.findall(r'<td class="number">(.)</td>', control.get("?part=sums").text) == ["2"]


def test_without_a_script_in_the_browser_the_page_comes_whole(control):
    files = csv_file(control, "5")
    headers = control.world.cookie("can")
    page = control.world.client.post(PAGE + "/import", headers=headers, files=files).text
    assert "<!doctype html>" in page.lower()
    assert "Import 1 row" in page


def test_sums_by_day_are_of_the_rows_that_match(control):
    control.rows(3)
    page = control.get("?part=sums").text
    assert '<td class="number">3</td><td class="number nowrap">30 TRY</td>' in page
    control.world.clock.advance(86_400)
    control.forget_sessions()
    control.rows(2, "later")
    days = re.findall(r'<td class="nowrap">([0-9-]+)</td><td class="number">(.)</td>', control.get("?part=sums").text)
    assert [n for _, n in days] == ["2", "3"]
    assert days[0][0] > days[1][0]
    assert "30 TRY" not in control.get("?part=sums&status=FAILED").text
