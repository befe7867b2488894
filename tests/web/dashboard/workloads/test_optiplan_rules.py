"""The workshop's rules: typed in a form, shown as changes, then written; errors at their field."""

import html
import re
from typing import Any

from kesin.web.dashboard.forms.schema_form import SchemaForm
from kesin.workloads.optiplan.pages.rules_form import (
    DUPLICATE,
    EMPTY,
    form_schema,
    form_value,
    list_changes,
    read_typed_rules,
)
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules, rules_json
from tests.tables import table
from tests.web.conftest import World
from tests.web.dashboard.workloads.orders_page import PAGE, get, post
from tests.web.dashboard.workloads.rules_form import hidden
from tests.workloads.optiplan.orders_ready import order_service


def in_force(world: World) -> dict[str, Any]:
    return rules_json(order_service(world.service).workshop.rules())


def saved(world: World, page: Any) -> Any:
    """Say yes to what a page shows."""
    return post(world, "/rules", data={**reviewed(page), "sure": "1"})


def reviewed(page: Any) -> dict[str, str]:
    """What the page with the changes sends back."""
    fields = re.findall(r'<input type="hidden" name="(v[^"]*|seen)" value="([^"]*)"', page.text)
    return {html.unescape(name): html.unescape(value) for name, value in fields}


def test_rules_are_typed_shown_and_then_written(shop):
    before = in_force(shop)
    typed = hidden(get(shop, "/rules").text)
    assert (typed["v/kerf_mm"], typed["v/trimByThickness/0/thickness"]) == ("4", "18")
    typed |= {"v/kerf_mm": "3,5", "v/trimByThickness/0/trim": "12", "v/retry_count_max": "2"}
    del typed["v/edgeMapping/0"], typed["v/edgeMapping/0/name"], typed["v/edgeMapping/0/thickness"]
    shown = post(shop, "/rules", data=typed)
    assert (shown.status_code, in_force(shop)) == (200, before)
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td><strong>(.*?)</strong>", shown.text)
    assert [(one, re.sub("<.+?>", "", old), re.sub("<.+?>", "", new)) for one, old, new in rows] == [
        ("Kerf", "4 mm", "3.5 mm"),
        ("Maximum retries", "3", "2"),
        ("Trim for 18 mm boards", "10 mm", "12 mm"),
        ("Band 040", "0.4 mm", "not set"),
    ]
    answer = saved(shop, shown)
    assert "the next time" in get(shop, answer.headers["location"].removeprefix(PAGE)).text
    now = in_force(shop)
    assert (now["kerf_mm"], now["trimByThickness"]["18"], now["retry_count_max"]) == (3.5, 12, 2)
    assert now["edgeMapping"] == {"Bant Yok": None, "1mm": 1, "2mm": 2}
    assert {name for name in before if before[name] != now[name]} == {
        *("kerf_mm", "trimByThickness", "edgeMapping", "retry_count_max")
    }
    assert post(shop, "/rules", data=hidden(get(shop, "/rules").text)).headers["location"] == (
        f"{PAGE}/rules?done=none"
    )


def test_what_is_wrong_with_a_rule_stands_at_its_field(shop):
    typed = hidden(get(shop, "/rules").text) | {
        "v/kerf_mm": "99",
        "v/trimByThickness/0/trim": "much",
        "v/trimByThickness/1/thickness": "18",
        "v/backingThicknesses/0/thickness": "",
        "v/edgeMapping/0/name": "",
        "v/retry_backoff_minutes/0/minutes": "-1",
        "v/grainMapping/1": "",
    }
    answer = post(shop, "/rules", data=typed)
    assert answer.status_code == 422
    errors = dict(re.findall(r'class="error-text" id="e-(v[^"]+)">(.*?)</p>', answer.text))
    assert set(errors) == {
        *("v/kerf_mm", "v/trimByThickness/0/trim", "v/trimByThickness/1/thickness", "v/backingThicknesses/0/thickness"),
        *("v/edgeMapping/0/name", "v/retry_backoff_minutes/0/minutes"),
    }
    assert errors["v/trimByThickness/1/thickness"] == "is repeated"
    assert errors["v/backingThicknesses/0/thickness"] == "must not be empty"
    assert {one for one in errors if f'href="#e-{one}"' in answer.text} == set(errors)
    assert ">Trims 2 · Board thickness</a> is repeated" in answer.text
    assert 'value="much"' in answer.text
    turkish = shop.client.post(f"{PAGE}/rules", data=typed, headers=shop.cookie("can") | {"accept-language": "tr"}).text
    assert "0…20 aralığında olmalı; gelen: 99" in turkish
    assert "birden çok kez geçiyor" in turkish
    assert 'lang="en"' not in turkish.partition("<main")[2]


def test_a_saw_its_boards_and_their_prices_are_edited(shop):
    typed = hidden(get(shop, "/rules").text)
    for do in ("saw_profiles", "boards", "rates/bands", "rack/except_materials"):
        typed = hidden(post(shop, "/rules/form", data=typed | {"do": f"add:/{do}"}).text)
    typed = hidden(post(shop, "/rules/form", data=typed | {"do": "add:/saw_profiles/2/trims"}).text)
    board = {"code": "ML", "material": "18MM", "thickness_mm": "18", "length_mm": "2800"}
    typed |= {f"v/boards/0/{key}": text for key, text in {**board, "width_mm": "2100"}.items()}
    typed |= {f"v/saw_profiles/2/trims/{side}_mm": "25" for side in ("left", "right", "top")}
    typed |= {
        "v/saw_profiles/2/name": "old saw",
        "v/saw_profiles/2/machine_files": "xml, csv",
        "v/saw_profiles/2/trims/bottom_mm": "28,5",
        "v/boards/0/price": "98.5",
        "v/rates/bands/0/name": "1mm",
        "v/rates/bands/0/price": "6",
        "v/rack/except_materials/0/name": "8MM",
    }
    again = hidden(post(shop, "/rules/form", data=typed | {"do": "add:/backingThicknesses"}).text)
    shown = post(shop, "/rules", data=typed | {"v/saw_profile": "old saw"})
    assert "old saw · Trim at the bottom" in shown.text
    assert again.items() >= (typed | {"v/saw_profiles/2/trims/bottom_mm": "28.5"}).items()
    assert saved(shop, shown).status_code == 303
    now = in_force(shop)
    assert now["saw_profile"] == "old saw"
    profile = now["saw_profiles"]["old saw"]
    assert profile["trims"] == {"left_mm": 25, "right_mm": 25, "bottom_mm": 28.5, "top_mm": 25}
    assert profile["machine_files"] == ["xml", "csv"]
    assert (now["boards"][0]["price"], now["boards"][0]["supplier"]) == (98.5, None)
    assert now["rates"]["bands"] == {"1mm": 6}
    assert now["rack"] == {"use": True, "except_materials": ["8MM"]}


def test_an_absurd_saw_is_refused_at_its_field(shop):
    typed, new = hidden(get(shop, "/rules").text), f"v/boards/{len(in_force(shop)['boards'])}"
    typed = hidden(post(shop, "/rules/form", data=typed | {"do": "add:/boards"}).text)
    typed |= {
        "v/saw_profiles/0/max_stages": "12",
        "v/saw_profiles/1/head_cut": "true",
        "v/saw_profiles/1/max_stages": "0",
        f"{new}/length_mm": "99999",
        "v/rates/cut_metre": "-1",
        "v/labels/pitch_x_mm": "wide",
    }
    page = post(shop, "/rules", data=typed).text
    errors = dict(re.findall(r'class="error-text" id="e-(v[^"]+)">(.*?)</p>', page))
    assert errors.keys() >= {
        *("v/saw_profiles/0/max_stages", "v/saw_profiles/1", f"{new}/length_mm"),
        *(f"{new}/code", "v/rates/cut_metre", "v/labels/pitch_x_mm"),
    }
    assert "head_cut has no effect" in errors["v/saw_profiles/1"]
    typed |= {"v/saw_profiles/0/max_stages": "3", "v/saw_profiles/1/name": "beam saw"}
    page = post(shop, "/rules", data=typed).text
    assert 'id="e-v/saw_profiles/1/name">is repeated' in page


def test_rows_of_the_rules_come_and_go(shop):
    typed = hidden(get(shop, "/rules").text)
    more = post(shop, "/rules/form", data=typed | {"do": "add:/backingThicknesses"}).text
    count = len(in_force(shop)["backingThicknesses"])
    assert f'name="v/backingThicknesses/{count}/thickness" value=""' in more
    less = hidden(post(shop, "/rules/form", data=typed | {"do": "remove:/trimByThickness/0"}).text)
    assert less["v/trimByThickness/0/thickness"] == typed["v/trimByThickness/1/thickness"]
    assert less["seen"] == typed["seen"]
    none = hidden(post(shop, "/rules/form", data=typed | {"do": "remove:/defaultPlateSize"}).text)
    assert "v/defaultPlateSize/width_mm" not in none
    assert "Default board height" in post(shop, "/rules", data=none).text
    assert post(shop, "/rules/form", data=typed | {"do": "dance"}).status_code == 422


def test_an_edit_of_rules_that_changed_meanwhile_is_refused(shop):
    typed = hidden(get(shop, "/rules").text)
    ours = post(shop, "/rules", data=typed | {"v/kerf_mm": "5"})
    theirs = post(shop, "/rules", data=typed | {"v/kerf_mm": "6"})
    assert saved(shop, theirs).status_code == 303
    for late in (saved(shop, ours), post(shop, "/rules", data=typed | {"v/kerf_mm": "5"})):
        assert late.status_code == 409
        assert "the rules have changed in the meantime" in late.text
    assert in_force(shop)["kerf_mm"] == 6
    again = post(shop, "/rules", data=hidden(late.text))
    assert "6 mm" in again.text
    assert saved(shop, again).status_code == 303
    assert in_force(shop)["kerf_mm"] == 5


def test_what_was_reviewed_is_saved_or_edited_on(shop):
    typed = hidden(get(shop, "/rules").text)
    shown = post(shop, "/rules", data=typed | {"v/kerf_mm": "2"})
    assert saved(shop, shown).headers["location"].endswith("done=kerf_mm")
    buttons = re.findall(r'<button[^>]*? name="(do|sure)" value="(\w+)">(.*?)</button>', shown.text)
    assert buttons == [("sure", "1", "Save 1 change"), ("do", "edit", "Back to editing")]
    back = post(shop, "/rules", data=reviewed(shown) | {"do": "edit"})
    assert hidden(back.text) == typed | {"v/kerf_mm": "2"}
    answer = post(shop, "/rules", data=typed | {"v/kerf_mm": "99"})
    assert (answer.status_code, "kerf_mm" in answer.text) == (422, True)
    assert post(shop, "/rules", data={}).status_code == 422
    assert post(shop, "/rules", "ece", data=typed).status_code == 403
    seen = get(shop, "/rules", who="ece").text
    assert "machineDropFolder" in seen
    assert "<fieldset disabled" in seen


def test_the_form_shows_every_rule_there_is():
    rules = rules_json(default_rules())
    typed = read_typed_rules(form_value(rules), rules)
    assert (typed.values, typed.errors) == (rules, {})
    for name, one in Rules.model_fields.items():
        key = one.alias or name
        is_shown = key in form_schema(str)["properties"]
        assert is_shown == (key not in {"ackMode", "cm_to_mm_multiplier", "mergePolicy"})
        assert bool(typed.pointer_of(key)) == is_shown
    bare = {name: one for name, one in rules.items() if name != "defaultPlateSize"}
    assert read_typed_rules(form_value(bare), bare).values == bare
    assert {label for label, *_ in list_changes(str, {}, rules)} >= {"Kerf", "Band 040", "Grain 0"}


def test_the_review_says_every_digit():
    before = rules_json(default_rules())
    after = {**before, "kerf_mm": 2100.5555}
    [(_, now, then, _)] = list_changes(str, before, after)
    assert (now, then) == ("4", "2100.5555")


def test_the_name_of_a_band_is_kept_as_it_is_and_a_thickness_is_a_number():
    rules = {"edgeMapping": {"ABS 2.0": 2, "ABS 2": 1}, "trimByThickness": {"18.0": 5}}
    typed = read_typed_rules(form_value(rules), rules)
    assert typed.values["edgeMapping"] == {"Bant Yok": None, **rules["edgeMapping"]}
    assert typed.values["trimByThickness"] == {"18": 5}
    assert typed.errors == {}


@table(
    ("name", "rows", "pointer", "error"),
    [
        ("trimByThickness", [{"trim": 1}], "/trimByThickness/0/thickness", EMPTY),
        ("trimByThickness", [{"thickness": 1}], "/trimByThickness/0/trim", EMPTY),
        (
            *("trimByThickness", [{"thickness": "x", "trim": 1}]),
            *("/trimByThickness/0/thickness", "must be a number, got 'x'"),
        ),
        (
            *("trimByThickness", [{"thickness": 2, "trim": 1}, {"thickness": 2.0}]),
            *("/trimByThickness/1/thickness", DUPLICATE),
        ),
        ("edgeMapping", [{"name": "Bant Yok"}], "/edgeMapping/0/name", DUPLICATE),
        ("materials", [{"name": "MDF"}, {}], "/materials/1/name", EMPTY),
    ],
)
def test_a_row_that_cannot_be_kept_is_an_error_at_its_cell(name, rows, pointer, error):
    assert read_typed_rules({name: rows}, {}).errors == {pointer: error}


@table(
    ("path", "pointer"),
    [
        ("timeouts.optiXmlMinutes", "/timeouts/optiXmlMinutes"),
        ("defaultPlateSize.width_mm", "/defaultPlateSize/width_mm"),
        ("trimByThickness.18.5", "/trimByThickness/1/trim"),
        ("trimByThickness.18.5.[key]", "/trimByThickness/1/thickness"),
        ("trimByThickness.99", "/trimByThickness"),
        ("retry_backoff_minutes[1]", "/retry_backoff_minutes/1/minutes"),
        ("retry_backoff_minutes[9]", "/retry_backoff_minutes"),
        ("ackMode", ""),
        ("saw_profiles.v1.5.trims.left_mm", "/saw_profiles/0/trims/left_mm"),
        ("saw_profiles.v1.5.machine_files[0]", "/saw_profiles/0/machine_files"),
        ("saw_profiles.v1.5", "/saw_profiles/0"),
        ("boards[0].price", "/boards/0/price"),
        ("boards[7].price", "/boards"),
        ("rates.currency", "/rates/currency"),
        ("rates.bands.ABS 2.0", "/rates/bands/0/price"),
    ],
)
def test_a_path_of_the_rules_has_a_field(path, pointer):
    rules = {"trimByThickness": {"18": 5, "18.5": 6}, "retry_backoff_minutes": [1, 2]}
    rules |= {"saw_profiles": {"v1.5": {}}, "boards": [{}], "rates": {"bands": {"ABS 2.0": 1}}}
    assert read_typed_rules(form_value(rules), rules).pointer_of(path) == pointer


def test_odd_files_of_rules_are_no_trouble_to_the_form():
    odds: tuple[dict[str, Any], ...] = (
        {},
        {"trimByThickness": 1, "backingThicknesses": {}, "timeouts": [], "rates": 1},
        {"boards": {}},
    )
    for odd in odds:
        assert SchemaForm(form_schema(str)).draw(form_value(odd)).children
    typed = read_typed_rules(None, {})
    assert typed.values["edgeMapping"] == {"Bant Yok": None}
