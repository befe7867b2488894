"""A wrong request is refused with the names of its fields, before a job is created."""

import json
from typing import Any

from kesin.web.dependencies import DirectRoute
from tests.web.conftest import error_of
from tests.workloads.pdf.front import NO_JOB, opened_front, order
from tests.workloads.pdf.press import BOOK, SAMPLE

MAX_BODY_BYTES = 256 * 1024  # KESIN_PDF_BODY_KB


def test_an_unknown_template_is_400(front, me):
    for name in ("nothing", "../invoice", "Invoice", "ğ" * 200):
        response = front.post(me, {**order(), "template_name": name})
        assert (response.status_code, error_of(response)["code"]) == (400, "TEMPLATE_ERROR")


def test_a_template_that_is_not_allowed_looks_like_none(request, tmp_path):
    with opened_front("sqlite", tmp_path, request, pdf_allowed_templates="cutting_plan, absent") as front:
        me = front.owner()
        hidden, absent = (front.post(me, {**order(), "template_name": name}) for name in ("invoice", "absent"))
        assert hidden.status_code == absent.status_code == 400
        assert hidden.content == absent.content
        sample = BOOK.get("cutting_plan").sample
        body = {"template_name": "cutting_plan", "variables": sample}
        assert front.post(me, body).status_code == 202
        names = [row["name"] for row in front.client.get("/pdf/templates", headers=me).json()]
        assert names == ["cutting_plan"]
        assert front.client.get("/pdf/templates/invoice", headers=me).status_code == 404


def test_every_wrong_variable_is_named_by_its_path(front, me):
    variables = {**SAMPLE, "lines": [{**SAMPLE["lines"][0], "quantity": "many"}], "colour": "red"}
    del variables["number"]
    response = front.post(me, {"template_name": "invoice", "variables": variables})
    assert response.status_code == 422
    fields = [problem["field"] for problem in error_of(response)["details"]["fields"]]
    assert fields == ["variables/colour", "variables/lines/0/quantity", "variables/number"]
    assert "many" not in response.text


def test_options_that_no_engine_supports_are_refused_by_name(front, me):
    for options, field in (
        ({"timeout": 0}, "options.timeout"),
        ({"timeout": 601}, "options.timeout"),
        ({"fail_safe": "hope"}, "options.fail_safe"),
        ({"engine": "prince"}, "options.engine"),
        ({"format": "B5"}, "options.format"),
        ({"width_mm": 100}, "options"),
        ({"width_mm": 100, "height_mm": 100, "format": "A4"}, "options"),
        ({"width_mm": 9, "height_mm": 100}, "options.width_mm"),
        ({"margin_mm": 105}, "options"),
        ({"margin_mm": [105, 0, 105, 0], "landscape": True}, "options"),
        ({"margin_mm": -1}, "options.margin_mm.constrained-float"),
        ({"scale": 2.1}, "options.scale"),
        ({"page_ranges": "3-1"}, "options.page_ranges"),
        ({"page_ranges": "a"}, "options.page_ranges"),
        ({"javascript": True}, "options.javascript"),
        ({"missing_glyphs": "ignore"}, "options.missing_glyphs"),
        ({"conformance": ["pdf/a-3b", "pdf/a-3a"]}, "options"),
        ({"conformance": ["pdf/ua-1", "pdf/ua-1"]}, "options"),
        ({"conformance": "pdf/ua-1", "tagged": False}, "options"),
        ({"conformance": "pdf/ua-1", "engine": "weasyprint"}, "options"),
        ({"print_background": False, "engine": "weasyprint"}, "options"),
    ):
        response = front.post(me, {**order(), "options": options})
        assert response.status_code == 422, options
        fields = [problem["field"] for problem in error_of(response)["details"]["fields"]]
        assert field in fields, options


def test_a_body_of_another_shape_is_422(front, me):
    changes: list[dict[str, Any]] = [
        {"template_name": ""}, {"template_name": "x" * 201}, {"template_name": 5},
        {"variables": []}, {"priority": 1}, {"file_name": "a\0b"}, {"file_name": ""},
        {"options": []},
    ]  # fmt: skip
    for change in changes:
        assert front.post(me, {**order(), **change}).status_code == 422, change
    for body in ("", "{", "[" * 100_000, "1" * 5_000, "null"):
        response = front.client.post("/pdf/jobs", content=body, headers=_json(me))
        assert response.status_code in {400, 422}
        error_of(response)


def test_values_that_cannot_be_stored_or_printed_are_422(front, me):
    deep = "[" * 40 + "]" * 40
    for value in ("NaN", "Infinity", r'"\ud800"', r'"\u0000"', deep, '{"a": 1}'):
        body = json.dumps(order("@")).replace('"@"', value)
        response = front.client.post("/pdf/jobs", content=body, headers=_json(me))
        assert response.status_code == 422, value
        assert error_of(response)["details"]["fields"][0]["field"].startswith("variables"), value
    assert front.post(me, order(r"A\u0000")).status_code == 202  # a text that only looks like one


def _json(who: dict[str, str]) -> dict[str, str]:
    return {**who, "content-type": "application/json"}


def test_a_body_of_256_kib_is_taken_and_one_byte_more_is_not(front, me):
    text = json.dumps({**order(), "file_name": "ğ"})
    full = text + " " * (MAX_BODY_BYTES - len(text.encode()))
    assert front.client.post("/pdf/jobs", content=full, headers=_json(me)).status_code == 202
    response = front.client.post("/pdf/jobs", content=full + " ", headers=_json(me))
    assert (response.status_code, error_of(response)["code"]) == (413, "too_large")


def test_a_full_body_is_stored_though_the_job_around_it_is_larger(front, me):
    line = {**SAMPLE["lines"][0], "description": "x" * 500}
    body = order()
    body["variables"] |= {"notes": "", "lines": [line]}
    step = len(_compact(line)) + 1
    body["variables"]["lines"] = [line] * (1 + (MAX_BODY_BYTES - len(_compact(body))) // step)
    body["variables"]["notes"] = "n" * (MAX_BODY_BYTES - len(_compact(body)))
    assert len(_compact(body)) == MAX_BODY_BYTES
    response = front.client.post("/pdf/jobs", content=_compact(body), headers=_json(me))
    assert response.status_code == 202, response.text
    assert len(front.found(response.json()["job_id"]).payload_json) > MAX_BODY_BYTES


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_an_unknown_id_is_404_on_every_route(front, me):
    for job_id in (NO_JOB, "nothing", "1", "%00", NO_JOB.upper() + "x"):
        responses = [front.get(me, job_id), front.fetch(me, job_id), front.cancel(me, job_id)]
        assert {response.status_code for response in responses} == {404}


def test_a_request_is_answered_alike_with_and_without_the_framework(front, me, monkeypatch):
    """The route calls its endpoint itself; what FastAPI refuses is refused in the same words."""
    good = json.dumps(order("same"))
    deep = b'{"template_name":"invoice","variables":{"a":%s}}'
    requests: list[tuple[str, bytes, str]] = [
        (query, good.encode(), "application/json") for query in ("", "?", "?x=1", "?wait=nan")
    ]
    requests += [("", good.encode(), kind) for kind in ("", "text/plain", "application/a.b+json")]
    bodies = [
        *(good.replace('"same"', text).encode() for text in ("NaN", '"\\ud800"', '"\\u0000"', "1e999")),
        *(deep % text for text in (b"[" * 190 + b"]" * 190, b"[" * 5_000, b"1" * 5_000, b'"\xff"')),
        *(good.encode(name) for name in ("utf-8-sig", "utf-16", "utf-32")),
        good.encode() + b" x",
        json.dumps({**order("same"), "unknown": 1}).encode(),
        b'{"template_name":"nothing",' + good.encode()[1:],
        *(b"", b"null", b"[]", b'{"template_name":1,"variables":[]}'),
        json.dumps(order("x" * 70_000)).encode(),
        json.dumps(order("x" * MAX_BODY_BYTES)).encode(),
    ]
    requests += [("", body, "application/json") for body in bodies]
    front.post(me, json.loads(good))

    def answers(who: dict[str, str]) -> list[Any]:
        return [
            (response.status_code, response.content)
            for query, body, kind in requests
            for headers in [{"content-type": kind, "x-request-id": "same", **who}]
            for response in [front.client.post(f"/pdf/jobs{query}", content=body, headers=headers)]
        ]

    for who in (me, {}, {"x-api-key": "wrong"}):
        ours = answers(who)
        with monkeypatch.context() as patched:
            patched.setattr(DirectRoute, "takes", lambda *_: False)
            assert answers(who) == ours
        assert len({status for status, _ in ours}) > (who == me)
