"""All sites in one table: what needs a person on top, in any order, one's own only."""

import re

from kesin.engine.queue import apply_changes
from kesin.lifecycle.model import Change
from kesin.store.history import note_history
from kesin.workloads.oci import script
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import record_upload
from kesin.workloads.oci.pages import sites
from tests.web.conftest import ROOT
from tests.web.dashboard.workloads.control_page import ControlPage


def page(control: ControlPage, query: str = "", who: str = "ayse") -> str:
    headers = control.world.cookie(who)
    answer = control.world.client.get(f"/dashboard/oci{query}", headers=headers)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.text)


def listed(text: str) -> list[str]:
    return re.findall(r'<td><a href="/dashboard/site/([\w-]+)/', text)


def cells(text: str, site: str) -> list[str]:
    [row] = re.findall(rf"<tr>\s*<td><a href=\"/dashboard/site/{site}/.*?</tr>", text)
    plain = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row)]
    return [re.sub(r"\s+", " ", cell) for cell in plain]


def complete(control: ControlPage, n: int, site: str) -> None:
    ids = control.rows(n, f"done-{site}", site)
    script.export(control.site(site), limit=1_000, actor="tests")
    changes = [Change(job_id) for job_id in ids]
    apply_changes(control.context.queue, "ack", changes, actor="tests")


def test_every_site_has_its_counts(control):
    queue = control.context.queue
    note_history(queue.store, queue.name, queue.lifecycle, queue.now())
    control.failed(2)
    control.rows(3)
    complete(control, 4, "south")
    control.world.clock.advance(120)
    note_history(queue.store, queue.name, queue.lifecycle, queue.now())
    text = page(control)
    assert cells(text, "north") == ["north script", "2", "3", "–", "closed", "0", "0"]
    assert cells(text, "south") == ["south script", "0", "0", "2 min ago", "closed", "0", "4"]
    assert text.count('class="tiny"') == 1
    assert listed(page(control, who="can")) == ["north"]


def test_the_worst_comes_first_and_every_column_sorts(control):
    control.failed(1)
    control.rows(3, site="south")
    control.world.accounts.set_site(ROOT, "south", channel="api")
    record_upload(control.site("south"), ConnectionTrouble("AUTH", "BAD_LOGIN", "no"))
    assert listed(page(control)) == ["north", "south"]
    for column, first in (("name", "north"), ("waiting", "south"), ("breaker", "south")):
        text = page(control, f"?sort={column}")
        assert listed(text)[0] == first
        assert f'aria-sort="{"ascending" if column == "name" else "descending"}"' in text
        assert f'href="?sort=-{column}"' in text
        turned = page(control, f"?sort=-{column}")
        assert listed(turned) == listed(text)[::-1]
        assert f'aria-sort="{"descending" if column == "name" else "ascending"}"' in turned
    assert listed(page(control, "?sort=nonsense")) == ["north", "south"]
    assert listed(page(control, "?sort=--name")) == ["north", "south"]


def test_rows_that_expire_soon_are_counted(control):
    control.rows(2)
    control.world.clock.advance(84 * 86_400)
    assert cells(page(control), "north")[5] == "2"


def test_a_site_is_searched_and_what_is_left_out_is_said(control, monkeypatch):
    for number in range(12):
        control.world.accounts.add_site(ROOT, f"other-{number:02}")
    assert listed(page(control, "?q=Other-1")) == ["other-10", "other-11"]
    assert "No site matches" in page(control, "?q=nowhere")
    monkeypatch.setattr(sites, "FIRST_SITES", 3)
    first = page(control, "?sort=name&q=other")
    assert listed(first) == ["other-00", "other-01", "other-02"]
    [(link, words)] = re.findall(r'href="([^"]*every=1)">(Show[^<]*)<', first)
    assert words == "Show all 12 sites"
    every = page(control, link.replace("&amp;", "&"))
    assert len(listed(every)) == 12
    assert "Show all" not in every
    assert all("every=1" in one for one in re.findall(r'href="(\?sort=[^"]*)"', every))
    monkeypatch.setattr(sites, "MAX_SITES", 13)
    assert "1 more site is not shown: search for it." in page(control, "?every=1")
    navigation = control.get(who="ayse").text
    assert 'href="/dashboard/oci"' in navigation


def test_the_overview_leads_to_where_the_data_is_corrected(control):
    control.failed(2)
    headers = control.world.cookie("can")
    text = control.world.client.get("/dashboard", headers=headers).text
    [link] = re.findall(r'href="([^"]*)">Fix data', text)
    assert link.endswith("/north/oci-control?status=FAILED&amp;code=UNPARSEABLE_GCLID#correct")
    there = control.world.client.get(link.replace("&amp;", "&"), headers=headers).text
    assert '<details id="correct" class="panel fold mend" open>' in there
    assert 'class="panel fold mend">' in control.get().text
