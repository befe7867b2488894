"""Files of conversions, and how they are read."""

import io
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kesin.foundation.problems import Problem
from kesin.workloads.oci.conversions.conversion import RowDefaults
from kesin.workloads.oci.conversions.parsing import CsvFile

EARLIEST, LATEST = map(datetime.fromisoformat, ("2001-01-01", "2998-01-01"))
ISTANBUL = ZoneInfo("Europe/Istanbul")
CLICK = "Cj0KCQiA_click-000001"
HEADER = "externalId;gclid;conversionName;conversionTime;conversionValue;conversionCurrency"
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1254"]
GOOGLE = "Google Click ID,Conversion Name,Conversion Time,Conversion Value,Conversion Currency"


def defaults(locale: str = "", **changes: Any) -> RowDefaults:
    return RowDefaults("north", ISTANBUL, "TRY", "Sale", locale=locale, **changes)


def open_file(text: str | bytes, locale: str = "", **changes: Any) -> Any:
    data = text if isinstance(text, bytes) else text.encode()
    return CsvFile(io.BytesIO(data), frozenset(), defaults(locale, **changes))


def read(text: str | bytes, locale: str = "", **changes: Any) -> list[Any]:
    return open_file(text, locale, **changes).read()


def problem(text: str | bytes, locale: str = "") -> Problem:
    with pytest.raises(Problem) as caught:
        read(text, locale)
    return caught.value


def line(when: str = "2026-11-10 10:00", value: str = "5", name: str = "Sale") -> str:
    return f"sale-1;{CLICK};{name};{when};{value};TRY"


def one(when: str = "2026-11-10 10:00", value: str = "5", locale: str = "") -> Any:
    [row] = read(f"{HEADER}\n{line(when, value)}\n", locale)
    return row
