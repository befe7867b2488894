"""Runs `kesin oci …` commands, and builds files of sales for them."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from kesin.foundation.clock import wall_clock_us

NAMES = ["externalId", "gclid", "conversionName", "conversionTime", "conversionValue"]


def days_ago(days: float) -> str:
    now = datetime.fromtimestamp(wall_clock_us() / 1_000_000, UTC)
    return (now - timedelta(days=days)).isoformat(timespec="seconds")


TIME = days_ago(2)


def row(number: int, **changes: object) -> dict[str, object]:
    plain = {
        "externalId": f"sale-{number}",
        "gclid": f"Cj0KCQiA_click-{number:06d}",
        "conversionName": "Phone sale",
        "conversionTime": TIME,
        "conversionValue": 100 + number,
    }
    return {**plain, **changes}


def as_csv(*rows: dict[str, object], delimiter: str = ",") -> str:
    page = io.StringIO(newline="")
    writer = csv.DictWriter(page, NAMES, delimiter=delimiter, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return page.getvalue()


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(name="oci")
def commands(kesin):
    """Run a `kesin oci` command; the site north exists."""
    assert kesin("site", "add", "north").code == 0

    def run(*words: object, text: str | None = None):
        return kesin("oci", *words, text=text)

    return run
