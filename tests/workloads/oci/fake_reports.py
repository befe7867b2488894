"""Google's answers to queries (GAQL), made of the messages of the official client library.

Every field that is asked for must be one of Google's; only fields that are asked for are answered.
"""

import re
from collections import defaultdict
from typing import Any

from google.protobuf import json_format

SUMMARY = "offline_conversion_upload_conversion_action_summary"
_RESOURCES = ("conversion_action", "customer", SUMMARY)
_FIELD = re.compile(rf"\b({'|'.join(_RESOURCES)}|segments|metrics)\.([a-z_.]+)(?: = '(\w+)')?")
_DATES = re.compile(r"segments\.date BETWEEN '([\d-]{10})' AND '([\d-]{10})'")


class ReportsApi:
    """What the account has to report; every attribute may be changed."""

    action: str
    actions: list[dict[str, Any]]
    listed_as: dict[str, Any]
    account: str

    def reset(self) -> None:
        self.time_zone = "Europe/Istanbul"
        self.page_rows = 10_000
        # (action id, its name, client, day) → successful, failed, pending
        self.uploaded: dict[tuple[int, str, str, str], tuple[int, int, int]] = {}
        self.conversions: dict[tuple[str, int, str], float] = {}  # (day, action id, name)

    def report(self, query: str, token: str, response: Any) -> list[str]:
        """Fill the response; returns the fields that Google does not have."""
        row = response.results.add()
        strange = [one for one in _FIELD.findall(query) if not _has_field(row, *one)]
        response.ClearField("results")
        if strange:
            return list(map(".".join, strange))
        chosen: dict[str, set[str]] = defaultdict(set)
        for resource, name, _ in _FIELD.findall(query.partition(" FROM ")[0]):
            chosen[resource].add(name)
        rows = self._rows(query)
        first = int(token or 0)
        for values in rows[first : first + self.page_rows]:
            found = response.results.add()
            for resource, names in chosen.items():
                given = {n: v for n, v in values[resource].items() if n in names}
                json_format.ParseDict(given, getattr(found, resource))
        if first + self.page_rows < len(rows):
            response.next_page_token = str(first + self.page_rows)
        return []

    def _rows(self, query: str) -> list[dict[str, dict[str, Any]]]:
        [resource] = re.findall(rf" FROM ({'|'.join(_RESOURCES)})\b", query)
        if resource == "conversion_action":
            assert "conversion_action.type = 'UPLOAD_CLICKS'" in query
            first = {"id": self.action.rpartition("/")[2], **self.listed_as}
            listed = sorted([first, *self.actions], key=lambda action: action["name"])
            return [{resource: action} for action in listed]
        if resource == SUMMARY:
            return [{resource: one} for one in self._summaries()]
        customer = {"id": self.account, "time_zone": self.time_zone, "currency_code": "TRY"}
        if " metrics." not in query:
            return [{resource: customer}]
        [(begin, end)] = _DATES.findall(query)
        return [
            {
                "segments": {
                    "date": day,
                    "conversion_action": f"customers/{self.account}/conversionActions/{number}",
                    "conversion_action_name": name,
                },
                "metrics": {"all_conversions_by_conversion_date": conversions},
            }
            for (day, number, name), conversions in self.conversions.items()
            if begin <= day <= end
        ]

    def _summaries(self) -> list[dict[str, Any]]:
        summaries: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
        for (number, name, client, day), counts in self.uploaded.items():
            names = ("successful_count", "failed_count", "pending_count")
            kinds = dict(zip(names, counts, strict=True))
            summaries[number, name, client].append({"upload_date": day, **kinds})
        return [
            {"client": client, "conversion_action_id": number, "conversion_action_name": name, "daily_summaries": days}
            for (number, name, client), days in summaries.items()
        ]


def _has_field(row: Any, resource: str, path: str, value: str) -> bool:
    """Whether Google's message of a row has this field, and its enum the value sought."""
    field = row.DESCRIPTOR.fields_by_name[resource]
    for name in path.split("."):
        fields = field.message_type.fields_by_name if field.message_type else {}
        if name not in fields and f"{name}_" not in fields:  # Python's word for type is type_
            return False
        field = fields[name] if name in fields else fields[f"{name}_"]
    return not value or (field.enum_type is not None and value in field.enum_type.values_by_name)
