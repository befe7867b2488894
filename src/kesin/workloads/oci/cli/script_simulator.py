"""`kesin oci simulate-script`: simulates the Google Ads script against a running server."""

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.terminal import Yes, confirm, flag, option, print_table, say, say_json
from kesin.foundation.text import canonical_json
from kesin.lifecycle.errors import Category
from kesin.workloads.common.api_client import ApiResponse, Send, checked_url, is_loopback, over_http
from kesin.workloads.common.cli import JsonOption
from kesin.workloads.oci.cli.site import SiteOption
from kesin.workloads.oci.script import MAX_EXPORT_ROWS


class Crash(StrEnum):
    """Where a run of the script ends before its time."""

    AFTER_EXPORT = "after-export"
    AFTER_UPLOAD = "after-upload"
    BEFORE_ACK = "before-ack"


VERSION: Final = "simulator"
MAX_PAGES: Final = 10_000  # of a run, so that every loop ends
MAX_RUNS: Final = 1_000
_OK: Final = 200
_MAX_KEY_BYTES: Final = 1_000
_HARM: Final = "would count as delivered although Google never received them"
_FAULTS: Final = {
    "MISSING_CLICK_ID": "simulated: gclid, wbraid and gbraid are missing",
    "INVALID_CLICK_ID_FORMAT": "simulated: this is not a click id",
    "MISSING_TIME": "simulated: conversionTime is missing",
    "INVALID_TIME_FORMAT": "simulated: this is not a time",
    "INVALID_CONVERSION_VALUE": "simulated: this is not an amount",
}
_THROWN: Final = "UPLOAD_EXCEPTION"
_FAULT_FIELDS: Final = ("orderId", "gclid", "wbraid", "gbraid", "conversionName", "conversionValue")
_HINTS: Final = {
    401: "the key is wrong, expired or revoked",
    403: "the key needs the oci:script scope for this site",
    404: "is this the address of `kesin serve`, and is the site's name right?",
    429: "KESIN_RATE_PER_S limits requests: wait a little",
}


@dataclass(slots=True)
class ScriptRun:
    """The counts of a run, as the script would report them."""

    exported: int = 0
    acked: int = 0
    failed: int = 0
    crashed: Crash | None = None
    refused: int = 0  # reported rows that the server refused
    paused: bool = False


@dataclass
class ScriptSimulator:
    """The script of one site. Equal random generators give equal runs."""

    send: Send
    site: str
    _: KW_ONLY
    rng: random.Random
    fail_share: float = 0.0  # of the rows, reported as failed
    upload_error_share: float = 0.0  # of the pages, whose upload throws
    limit: int = MAX_EXPORT_ROWS
    pages: int = MAX_PAGES  # at most, per run
    uploaded: Counter[str] = field(default_factory=Counter)  # order id → uploads

    def __post_init__(self) -> None:
        self._salt = self.rng.getrandbits(64)

    @property
    def repeated(self) -> int:
        """The conversions uploaded more than once; Google counts an order id once."""
        return sum(times > 1 for times in self.uploaded.values())

    def run(self, crash: Crash | None = None) -> ScriptRun:
        """Export pages until none is left or an upload throws; ``crash`` ends the first page."""
        ran = ScriptRun()
        for _ in range(self.pages):
            if self._run_page(ran, crash):
                break
        if ran.crashed is None:
            counts = {"exported": ran.exported, "acked": ran.acked, "failed": ran.failed}
            body = {"siteId": self.site, "scriptVersion": VERSION, **counts}
            self._ask("POST", "/api/oci/script-heartbeat", body)
        return ran

    def _run_page(self, ran: ScriptRun, crash: Crash | None) -> bool:
        """Export, upload and report one page; returns whether the run is over."""
        query = f"siteId={quote(self.site, safe='')}&markAsExported=true&limit={self.limit}"
        response = self._ask("GET", f"/api/oci/google-ads-export?{query}")
        rows, ran.paused = response.body, "x-kesin-paused" in response.headers
        if not isinstance(rows, list):
            raise Problem("the export is not a list: is this the address of `kesin serve`?")
        if not rows:
            return True
        ran.exported += len(rows)
        ran.crashed = crash  # on its first page, if at all
        if crash == Crash.AFTER_EXPORT:
            return True
        faults = self._upload(rows)
        if crash == Crash.AFTER_UPLOAD:
            return True
        sent = faults.pop("", [])
        for code, ids in faults.items():
            message = _FAULTS.get(code, "simulated: Google did not accept the upload")
            category = Category.TRANSIENT if code == _THROWN else Category.VALIDATION
            report = {"errorCode": code, "errorMessage": message, "errorCategory": category}
            ran.refused += self._report("/api/oci/ack-failed", ids, report)
            ran.failed += len(ids)
        if crash == Crash.BEFORE_ACK:
            return True
        if sent:
            ran.refused += self._report("/api/oci/ack", sent, {})
            ran.acked += len(sent)
        return _THROWN in faults

    def _upload(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """The ids of the rows by what is wrong with them; those under "" were sent."""
        otherwise = _THROWN if self.rng.random() < self.upload_error_share else ""
        ids: dict[str, list[str]] = {}
        for row in rows:
            code = self._fault(row) or otherwise
            ids.setdefault(code, []).append(row["id"])
            self.uploaded.update([] if code else [row["orderId"]])
        return ids

    def _fault(self, row: Mapping[str, Any]) -> str:
        """Why a row cannot be sent: the same on every attempt, until its data changes."""
        seed = canonical_json({name: row.get(name) for name in _FAULT_FIELDS})
        rng = random.Random(f"{self._salt}{seed}")
        return rng.choice([*_FAULTS]) if rng.random() < self.fail_share else ""

    def _report(self, path: str, ids: Sequence[str], fields: Mapping[str, str]) -> int:
        response = self._ask("POST", path, {"siteId": self.site, "queueIds": list(ids), **fields})
        return len(response.body["refused"])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> ApiResponse:
        response = self.send(method, path, body)
        if response.status == _OK:
            return response
        error = response.body.get("error") if isinstance(response.body, dict) else None
        message = error.get("message", "") if isinstance(error, dict) else ""
        answer = f"{response.status}: {message}" if message else str(response.status)
        hint = f" ({_HINTS[response.status]})" if response.status in _HINTS else ""
        raise Problem(f"{path.partition('?')[0]} returned {answer}{hint}", code="script_refused")


_KEY_FILE: Final = "A file with an API key for oci:script."
_KEY_ENV: Final = "The environment variable that contains the key."
_CRASH: Final = "Where a run crashes; repeatable: the first value is for the first run, and so on."
_share: Final = partial(option, "SHARE", min=0, max=1)


def simulate_script(
    *,
    site: SiteOption,
    url: Annotated[str, option("URL", "The service's address.")],
    key_file: Annotated[Path | None, option("FILE", _KEY_FILE, dir_okay=False)] = None,
    key_env: Annotated[str | None, option("NAME", _KEY_ENV)] = None,
    runs: Annotated[int, option("N", "The number of runs.", min=1, max=MAX_RUNS)] = 1,
    crash: Annotated[list[Crash] | None, option("|".join(Crash), _CRASH)] = None,
    fail_share: Annotated[float, _share("The share of rows to report as failed.")] = 0.1,
    upload_error_share: Annotated[float, _share("The share of uploads that fail.")] = 0.0,
    seed: Annotated[int, option("N", "The same seed gives the same runs.")] = 1,
    limit: Annotated[int, option("N", "Rows per export.", min=1, max=MAX_EXPORT_ROWS)] = MAX_EXPORT_ROWS,
    yes: Yes = False,
    yes_really: Annotated[bool, flag("--yes-really", "Allow a server on another machine.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate the Google Ads script, for tests only.

    Exports rows from a running server over HTTP and acknowledges them without uploading them, so
    Google never receives them. Options make runs fail or crash; a crashed run's rows return to the
    queue when their claims expire. Servers on other machines require --yes-really.
    """
    base = checked_url(url)
    if not is_loopback(base) and not yes_really:
        raise Invalid(f"{base} is another machine: its rows {_HARM}; --yes-really allows it")
    crashes = crash or []
    if len(crashes) > runs:
        raise Invalid(f"{len(crashes)} crashes need as many runs: add --runs {len(crashes)}")
    key = _read_key(key_file, key_env)
    if not (yes or yes_really):
        where = f"the waiting rows of the site {site} at {base}"
        confirm(f"Export and acknowledge {where}? They {_HARM}.", f"{where} {_HARM}")
    script = ScriptSimulator(over_http(base, key), site, rng=random.Random(seed), limit=limit)
    script.fail_share, script.upload_error_share = fail_share, upload_error_share
    completed = [script.run(crashes[n] if n < len(crashes) else None) for n in range(runs)]
    if as_json:
        uploaded = {"conversions": len(script.uploaded), "more_than_once": script.repeated}
        say_json({"runs": [asdict(run) for run in completed], "uploaded": uploaded})
        return
    rows = []
    for number, run in enumerate(completed, 1):
        end = f"crashed {run.crashed}" if run.crashed else "paused" if run.paused else "well"
        rows.append((number, run.exported, run.acked, run.failed, run.refused, end))
    print_table(("run", "exported", "acked", "failed", "refused", "end"), rows)
    say(
        f"{len(script.uploaded)} conversions would be uploaded, {script.repeated} of them more "
        "than once with the same orderId, which Google counts once"
    )


def _read_key(file: Path | None, variable: str | None) -> str:
    if (file is None) == (variable is None):
        raise Invalid(
            "give a key with either --key-file or --key-env; "
            "`kesin key create --scope oci:script --site SITE` creates one"
        )
    if file is not None:
        with file.open("rb") as source:
            key = source.read(_MAX_KEY_BYTES).decode("utf-8", "replace").strip()
    else:
        key = os.environ.get(variable or "", "").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        where = file if file is not None else f"the variable {variable}"
        raise Problem(f"there is no key in {where}")
    return key
