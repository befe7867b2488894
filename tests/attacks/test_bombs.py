"""Files that unpack or decode to very much: refused before they cost time or memory."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kesin.workloads import pdf
from tests.attacks import bombs
from tests.attacks.conftest import Record
from tests.attacks.target import Target
from tests.workloads.optiplan.workbooks import sheet_of

SAMPLE = json.loads((Path(pdf.__file__).parent / "templates" / "invoice" / "sample.json").read_text())
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PHONE = "0555 123 45 67"
HONEST_ROWS = 900
RATIO = 8  # between the processor times of a bomb and of an honest list
FLOOR_S = 0.15  # of processor time; the clock ticks a hundred times a second
MAX_GROWTH_MB = 96
REFUSED = {400, 413, 422}


@dataclass(frozen=True)
class Cost:
    """What a process has used so far."""

    cpu_s: float
    peak_mb: float

    @classmethod
    def of(cls, pid: int) -> Cost:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        status = Path(f"/proc/{pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        return cls((int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024)


def import_by_program(target: Target, name: str, data: bytes) -> Any:
    path = "/orders/bomb/import/xlsx"
    query = {"customer_phone": PHONE, "file_name": name}
    headers = {"content-type": "text/csv" if name.endswith("csv") else XLSX}
    return target.served.client.post(path, params=query, content=data, headers=headers)


def import_by_page(target: Target, name: str, data: bytes) -> Any:
    form = {"order_id": "bomb", "customer_phone": PHONE}
    return target.served.client.post("/dashboard/optiplan/import", data=form, files={"file": (name, data)})


ROUTES = {"a program": import_by_program, "a page": import_by_page}


@pytest.fixture(scope="module")
def honest_cpu_s(target: Target) -> float:
    """The processor time of an honest list of many rows."""
    head = ["Parça", "Boy", "En", "Adet", "Renk", "Kalınlık"]
    rows = [[f"p{n}", 50 + n % 20, 40, 2, "Beyaz", 18] for n in range(HONEST_ROWS)]
    data = sheet_of([head, *rows])
    before = Cost.of(target.pid)
    import_by_program(target, "list.xlsx", data)
    return max(Cost.of(target.pid).cpu_s - before.cpu_s, FLOOR_S)


_made = cache(lambda make: make())  # for both routes


@pytest.mark.parametrize("by", ["a program", pytest.param("a page", marks=pytest.mark.long)])
def test_a_bomb_is_refused_before_it_costs(by, target, honest_cpu_s, record: Record, *, is_long):
    files = {name: ("bomb.xlsx", make) for name, make in bombs.WORKBOOKS.items()}
    files |= {name: ("bomb.csv", make) for name, make in bombs.LISTS.items()}
    answers: Counter[int] = Counter()
    wrong = []
    for name, (file_name, make) in files.items():
        if not is_long and name not in bombs.SAMPLED:
            continue
        data = _made(make)
        before = Cost.of(target.pid)
        response = ROUTES[by](target, file_name, data)
        after = Cost.of(target.pid)
        answers[response.status_code] += 1
        cpu, growth = after.cpu_s - before.cpu_s, after.peak_mb - before.peak_mb
        if response.status_code not in REFUSED or "Traceback" in response.text:
            wrong.append(f"{name}: {response.status_code} {response.text[:200]}")
        if cpu > RATIO * honest_cpu_s or growth > MAX_GROWTH_MB:
            wrong.append(f"{name} of {len(data)} bytes: {cpu:.2f} s, {growth:.0f} MB more")
    record(f"files of {by}", answers)
    assert wrong == []
    assert target.served.client.get("/jobs?order_id=bomb").json()["jobs"] == []


PREVIEW = "/pdf/templates/invoice/preview"


@pytest.mark.parametrize("path", ["/pdf/jobs", PREVIEW, pytest.param("/pdf/batches", marks=pytest.mark.long)])
def test_a_picture_bomb_is_refused_before_it_is_decoded(path, target, record: Record, *, is_long):
    answers: Counter[int] = Counter()
    wrong = []
    for name, make in list(bombs.PICTURES.items())[0 if is_long else 1 :]:
        before = Cost.of(target.pid)
        response = target.served.client.post(path, json=_body(path, make()))
        growth = Cost.of(target.pid).peak_mb - before.peak_mb
        answers[response.status_code] += 1
        if response.status_code not in REFUSED or growth > MAX_GROWTH_MB:
            wrong.append(f"{name}: {response.status_code}, {growth:.0f} MB {response.text[:100]}")
    record(f"pictures of {path}", answers)
    assert wrong == []


@pytest.mark.parametrize("path", ["/pdf/jobs", PREVIEW])
def test_a_picture_of_a_usual_size_is_taken(path, target):
    response = target.served.client.post(path, json=_body(path, bombs.png(2_000)))
    assert response.status_code in {200, 202, 503}, response.text  # there is no worker


def _body(path: str, picture: str) -> dict[str, Any]:
    variables = {**SAMPLE, "logo": picture}
    if path == PREVIEW:
        return {"variables": variables}
    rows = {"rows": [variables]} if path == "/pdf/batches" else {"variables": variables}
    return {"template_name": "invoice", **rows}
