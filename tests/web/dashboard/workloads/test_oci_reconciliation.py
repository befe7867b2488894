"""The page of a site's reconciliation, and its file."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from kesin.foundation.text import unescape_cell
from kesin.workloads.oci import reconciliation, script
from tests.web.dashboard.workloads.control_page import PAGE, ROOT

API = "GOOGLE_ADS_API"


def day(control, back=0):
    now = datetime.fromtimestamp(control.world.clock.monotonic(), UTC)
    return (now.date() - timedelta(days=back)).isoformat()


@pytest.fixture
def reconciled(control):
    """A site with a copy: two rows sent yesterday, of one more action nothing."""
    control.rows(2)
    items = script.export(control.site(), limit=10, actor="tests")
    script.ack(control.site(), [item["id"] for item in items], actor="tests")
    control.world.clock.advance(86_400)
    reconciliation.store_copy(
        control.site(),
        ZoneInfo("UTC"),
        [
            (day(control, 1), "Sale", API, [1, 1, 0]),
            (day(control, 1), "=Others", API, [1_234, 0, 5]),
            (day(control, 5), "Sale", API, [7, 0, 0]),
            (day(control, 6), "Sale", API, [0, 3, 0]),
        ],
        [(day(control, 1), "Sale", 0.5)],
    )
    return control


def cells(page):
    """The rows of the table as plain text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.partition("<tbody>")[2], re.DOTALL)
    texts = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub("<[^>]+>", " ", one).split()) for one in row] for row in texts]


def test_three_columns_by_day_and_action_with_sums_and_no_rate(reconciled):
    page = reconciled.get("/reconciliation").text
    assert cells(page) == [
        [day(reconciled, 1), "=Others others also upload", "0", "1,234 5 pending", "–"],
        [day(reconciled, 1), "Sale", "2", "1 1 refused", "0.5"],
        [day(reconciled, 5), "Sale others also upload", "0", "7", "–"],
        [day(reconciled, 6), "Sale", "0", "0 3 refused", "–"],  # rows of ours may be refused
        ["Sum", "2", "1,242", "0.5"],
    ]
    assert "%" not in page.partition("<tbody>")[2].partition("</table>")[0]
    assert "Days are those of the Google Ads account (UTC)" in page
    titles = re.findall(r"<title>(.*?)</title>", page)
    assert f"{day(reconciled, 1)}: 2 sent, 1,235 accepted, 0.5 attributed" in titles


def test_days_are_chosen_and_a_range_is_bounded(reconciled):
    first, last = day(reconciled, 5), day(reconciled, 4)
    page = reconciled.get(f"/reconciliation?since={first}&until={last}").text
    assert [row[0] for row in cells(page)] == [first, "Sum"]
    assert reconciled.get("/reconciliation?since=&until=").status_code == 200
    wide = reconciled.get("/reconciliation?since=2001-01-01").text
    assert f'name="since" value="{day(reconciled, 92)}"' in wide
    backwards = reconciled.get(f"/reconciliation?since={last}&until={first}").text
    assert f'name="since" value="{first}"' in backwards
    assert reconciled.get("/reconciliation?since=monday").status_code == 422
    for until in ("2001-01-01", "0001-01-01"):
        page = reconciled.get(f"/reconciliation?until={until}").text
        assert "No figures for these days" in page
    future = reconciled.get("/reconciliation?since=9999-12-30&until=9999-12-31").text
    assert f'name="until" value="{day(reconciled, 1)}"' in future


def test_the_file_is_for_spreadsheets_and_none_of_its_cells_is_a_formula(reconciled):
    file = reconciled.get("/reconciliation?file=csv", who="ece")
    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    name = f"reconciliation-north-{day(reconciled, 14)}-{day(reconciled, 1)}.csv"
    assert file.headers["content-disposition"] == f'attachment; filename="{name}"'
    lines = file.content.decode("utf-8-sig").splitlines()
    assert lines == [
        "day,action,sent,successful,failed,pending,attributed",
        f"{day(reconciled, 1)},'=Others,0,1234,0,5,",
        f"{day(reconciled, 1)},Sale,2,1,1,0,0.5",
        f"{day(reconciled, 5)},Sale,0,7,0,0,",
        f"{day(reconciled, 6)},Sale,0,0,3,0,",
    ]
    assert unescape_cell("'=Others") == "=Others"


def test_the_page_says_what_is_missing_and_what_went_wrong(control):
    assert "if its reconcile option is set to yes; this has not been tested" in control.get("/reconciliation").text
    for channel, words in {"api": "after 03:00", "data_manager": "the adwords scope"}.items():
        control.world.accounts.set_site(ROOT, "north", channel=channel)
        assert words in control.get("/reconciliation").text
    site = control.site()
    error = {"message": "USER_PERMISSION_DENIED: not yours", "at": 1}
    short = [{"day": "2026-11-01", "sent": 10, "taken": 3}]
    state = {"error": error, "short": short, "zone": "UTC", "copiedAt": site.queue.now()}
    site.put_metadata("reconciliation", state)
    control.world.accounts.set_site(ROOT, "north", channel="api")
    page = control.get("/reconciliation").text
    assert "USER_PERMISSION_DENIED: not yours" in page
    assert "Google accepted 3 of the 10 rows sent on 2026-11-01" in page
    control.world.clock.advance(8 * 86_400)
    control.world.accounts.set_site(ROOT, "north", channel="script")
    page = control.get("/reconciliation").text
    assert "USER_PERMISSION_DENIED" not in page  # our worker does not try it any more
    assert "Google accepted 3" not in page  # as in the warnings of the site


def test_it_is_linked_and_speaks_turkish(reconciled):
    assert "/oci-control/reconciliation" in reconciled.get().text
    assert "/oci-control/reconciliation" in reconciled.get("/settings").text
    headers = {**reconciled.world.cookie("can"), "accept-language": "tr"}
    page = reconciled.world.client.get(f"{PAGE}/reconciliation", headers=headers).text
    for words in ("Mutabakat", "başkaları da yükleme yapıyor", "Şimdiye kadar ilişkilendirilen"):
        assert words in page
