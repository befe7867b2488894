"""The page of the offcut rack: the scanner, the offcut it opens, those in doubt, those found."""

from tests.web.conftest import World
from tests.web.dashboard.workloads.orders_page import get, post
from tests.workloads.optiplan.offcut_bodies import BODY
from tests.workloads.optiplan.stock.racks import put_offcut

TYPED = {name: str(value) for name, value in BODY.items()}


def put(shop: World, key: str, **other: object) -> str:
    return put_offcut(shop.service.queues["optiplan"], key, **other)


def test_a_scanned_id_opens_its_offcut(shop):
    offcut = put(shop, "scanned")
    page = get(shop, f"/rack?scan=%20{offcut.lower()}%0d").text
    assert f'id="h-offcut" class="mono">{offcut}' in page
    assert "900 × 700 mm" in page
    unknown = get(shop, "/rack?scan=R0")
    assert (unknown.status_code, "there is no offcut R0" in unknown.text) == (404, True)


def test_an_offcut_in_doubt_is_on_top_until_it_is_decided(shop):
    offcut = put(shop, "doubtful", state="IN_DOUBT")
    page = get(shop, "/rack").text
    assert page.index("was it cut?") < page.index("Add an offcut")
    assert f'action="/dashboard/optiplan/rack/{offcut}/cut"' in page
    assert f"rack/{offcut}/cut" not in get(shop, "/rack", who="ece").text
    decided = post(shop, f"/rack/{offcut}/uncut")
    assert decided.headers["location"].endswith(f"/rack?scan={offcut}&done=uncut")
    assert f"rack/{offcut}/cut" not in get(shop, "/rack").text


def test_an_offcut_is_added_as_it_was_typed(shop):
    added = post(shop, "/rack", data={**TYPED, "length_mm": "812,5"})
    page = get(shop, added.headers["location"].removeprefix("/dashboard/optiplan")).text
    assert "812.5 × 700 mm" in page
    wrong = post(shop, "/rack", data={**TYPED, "width_mm": "wide"})
    assert wrong.status_code == 422
    assert "must be a number" in wrong.text
    assert 'value="Beyaz"' in wrong.text
    assert post(shop, "/rack", who="ece", data=TYPED).status_code == 403


def test_a_change_that_is_refused_is_said_beside_the_offcut(shop):
    offcut = put(shop, "resized")
    assert post(shop, f"/rack/{offcut}/place", data={"place": " D2 "}).status_code == 303
    wrong = post(shop, f"/rack/{offcut}/resize", data={"length_mm": "0", "width_mm": "5"})
    assert (wrong.status_code, "must be in 1…10000" in wrong.text) == (422, True)
    assert "D2" in wrong.text
    assert post(shop, f"/rack/{offcut}/scrap").status_code == 303
    assert offcut in get(shop, "/rack?state=SCRAPPED").text
    assert post(shop, f"/rack/{offcut}/cut").status_code == 409
