"""What can be known when an order comes is refused then, with the part and the field."""

from typing import Any

from kesin.workloads.optiplan.pages.orders import _exported_files
from tests.workloads.optiplan.floor import Floor, any_order
from tests.workloads.optiplan.order_bodies import back, part

BUILT_IN: dict[str, Any] = {"opti_mode": "A"}


def refused(floor: Floor, *parts: dict[str, Any], **other: Any) -> dict[str, str]:
    """The fields that the order is refused for."""
    answer = floor.post(any_order(**{"parts": list(parts), **BUILT_IN, **other}))
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 201:
        return {}
    assert answer.json()["error"]["code"] == "E_VALIDATION"
    fields = answer.json()["error"]["details"]["fields"]
    return {field["field"]: field["message"] for field in fields}


def test_a_part_larger_than_its_board_is_refused_for_the_side_that_is_too_large(floor: Floor):
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"length_cm": 278, "width_cm": 208}, []),  # 2800 × 2100 without 10 mm at each side
        ({"length_cm": 278.1, "width_cm": 208}, ["length_cm"]),
        ({"length_cm": 278, "width_cm": 208.1}, ["width_cm"]),
        ({"length_cm": 278.1, "width_cm": 208.1}, ["length_cm", "width_cm"]),
        ({"length_cm": 278.2, "width_cm": 208, "edge_sx": "2mm"}, []),  # cut without its band
        ({"length_cm": 208, "width_cm": 278, "grain": 1}, ["width_cm"]),  # may not be turned
        ({"length_cm": 208, "width_cm": 278, "grain": 0}, []),
        ({"length_cm": 100, "width_cm": 278.1, "grain": 0}, ["width_cm"]),  # in no direction
        ({"length_cm": 208.1, "width_cm": 278, "grain": 0}, ["length_cm"]),
    ]
    for sizes, too_large in cases:
        found = refused(floor, part(), part(**{"id": "wide", "grain": 1, **sizes}))
        assert list(found) == [f"parts[1].{field}" for field in too_large]
        assert all("part wide, " in message for message in found.values())
        turned = sizes["width_cm"] == 278 and sizes.get("grain") == 1
        assert all(("it would fit if turned" in message) is turned for message in found.values())


def test_the_board_is_the_orders_own_or_the_one_that_its_material_names(floor: Floor):
    long = part(length_cm=300, material_code="18MM 183*366")
    small = {"plate_size": {"width_mm": 500, "height_mm": 900}}
    assert list(refused(floor, long)) == ["parts[0].length_cm"]  # the built-in one cuts plates
    assert refused(floor, long, opti_mode="C") == {}
    assert list(refused(floor, part(), **small)) == ["parts[0].width_cm"]


def test_an_unknown_band_but_not_of_a_back(floor: Floor):
    found = refused(floor, part(edge_up="3mm", edge_sx=""), back(edge_up="3mm"))
    assert list(found) == ["parts[0].edge_up", "parts[0].edge_sx"]
    assert found["parts[0].edge_up"].endswith("Bant Yok, 040, 1mm, 2mm")


def test_an_unknown_saw_and_an_unknown_effort(floor: Floor):
    assert refused(floor, part(), saw_profile="laser") == {
        "saw_profile": "must be one of saw_profiles in the rules (beam saw, sliding saw), got 'laser'"
    }
    assert list(refused(floor, part(), effort="extreme", use_rack=1)) == ["effort", "use_rack"]
    assert refused(floor, part(), saw_profile="sliding saw", effort="quick", use_rack=False) == {}


def test_an_unknown_material_where_the_rules_list_them(floor: Floor, rules: dict[str, Any]):
    assert refused(floor, part(material_code="anything")) == {}
    rules["materials"] = ["18MM 210*280", "8MM 210*280"]
    put = floor.client.put("/config/rules", json=rules, headers=floor.operator)
    assert (put.status_code, put.json()["changed"]) == (200, ["materials"])
    found = refused(floor, part(), part(material_code="anything"))
    assert found == {"parts[1].material_code": "is not a material in the rules: 18MM 210*280, 8MM 210*280"}


def test_a_back_in_a_list_without_its_own_thickness(floor: Floor):
    def sent(cell: str) -> Any:
        return floor.client.post(
            "/orders/L-1/import/xlsx?customer_phone=05551234567",
            content=f"18MM;210*280\nRENK: Beyaz\n;722;580;6\n{cell};700;500;2\n",
            headers={**floor.maker, "content-type": "text/csv"},
        )

    answer = sent("ARKALIK")
    assert answer.status_code == 422
    [row] = answer.json()["error"]["details"]["rows"]
    assert (row["row"], row["column"]) == (4, "A")
    assert row["message"] == "a back cannot be 18 mm thick: write, for example, ARKALIK 8MM"
    assert sent("ARKALIK 8MM").status_code == 201


# Ready to approve


def test_a_malformed_xml_is_not_ready_and_a_mended_one_is(floor: Floor):
    job_id = floor.held()
    [xml] = floor.plan(job_id)
    whole = xml.read_bytes()
    assert floor.job_body(job_id)["ready_to_approve"]
    xml.write_bytes(whole[:-20])
    assert not floor.job_body(job_id)["ready_to_approve"]
    xml.write_bytes(whole)
    assert floor.job_body(job_id)["ready_to_approve"]


def test_the_page_asks_before_an_approval_without_an_xml(floor: Floor):
    job_id = floor.held()
    who = floor.cookie(floor.known("boss", "admin"))
    path = f"/dashboard/optiplan/orders/{job_id}/approve"
    assert 'name="sure"' in floor.client.get(path, headers=who).text
    assert 'name="sure"' in floor.client.post(path, headers=who).text
    assert floor.state(job_id) == "HOLD"
    assert 'name="sure"' not in floor.client.post(path, data={"sure": "1"}, headers=who).text
    assert floor.state(job_id) == "NEW"
    ready = floor.held()
    floor.plan(ready)
    path = f"/dashboard/optiplan/orders/{ready}/approve"
    _exported_files.cache_clear()  # the folder was listed a moment ago
    assert 'name="sure"' not in floor.client.get(path, headers=who).text
    floor.client.post(path, headers=who)
    assert floor.state(ready) == "NEW"
