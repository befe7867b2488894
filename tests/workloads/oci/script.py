"""The real Google Ads Script in a JavaScript engine, with Google's objects played from here.

The script is read from its file and `main()` is called; only the size of a page can be changed. It
speaks real HTTP; time, chance and sleep are ours. What happens on the way can be spoiled: see the
attributes of `Script`.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import httpx
import quickjs

FILE = Path(__file__).parents[3] / "scripts" / "google-ads-oci" / "GoogleAdsScript.js"
START_MS = 1_790_000_000_000
LONGEST_SLEEP_MS = 300_000  # Google refuses more

EXPORT = "/api/oci/google-ads-export"
VERIFY = "/api/oci/v2/verify"
ACK = "/api/oci/ack"
ACK_FAILED = "/api/oci/ack-failed"
HEARTBEAT = "/api/oci/script-heartbeat"
ACTIONS = "/api/oci/actions"
LISTED_AT = "KESIN_ACTIONS_LISTED_AT"
RECONCILIATION = "/api/oci/reconciliation"
RECONCILED_AT = "KESIN_RECONCILED_AT"

NETWORK = "network"  # it never arrives
LOST = "lost"  # it arrives, and the answer does not
Moment = Literal["exported", "applied", "acking", "acked"]

# Where Google's methods return nothing, these return nothing too.
GOOGLE = """
'use strict';
const host = (name, ...args) => {
  const answer = JSON.parse(_host(name, JSON.stringify(args)));
  if ('thrown' in answer) {
    throw new Error(answer.thrown);
  }
  return answer.value;
};
Date.now = () => host('now');
Math.random = () => host('random');
const Utilities = {
  sleep: (ms) => { host('sleep', ms); },
  formatDate: (date, zone, format) => host('formatDate', date.getTime(), zone, format),
};
const Logger = { log: (text) => { host('log', String(text)); } };
const console = { log: (text) => { host('log', String(text)); } };
const PropertiesService = {
  getScriptProperties: () => ({
    getProperty: (name) => host('property', name),
    setProperty: (name, text) => { host('setProperty', name, text); },
  }),
};
const UrlFetchApp = {
  fetch: (url, options) => {
    const answer = host('fetch', url, options || {});
    return {
      getResponseCode: () => answer.status,
      getContentText: () => answer.text,
      getAllHeaders: () => answer.headers,
    };
  },
};
const AdsApp = {
  getExecutionInfo: () => ({ isPreview: () => host('isPreview') }),
  currentAccount: () => ({ getTimeZone: () => host('timeZone') }),
  search: (query) => {
    const rows = host('search', query);
    return { hasNext: () => rows.length > 0, next: () => rows.shift() };
  },
  bulkUploads: () => ({
    newCsvUpload: (columns, options) => {
      const number = host('newCsvUpload', columns, options || {});
      return {
        append: (row) => { host('append', number, row); },
        forOfflineConversions: () => { host('forOfflineConversions', number); },
        setFileName: (name) => { host('setFileName', number, name); },
        apply: () => { host('apply', number); },
      };
    },
  }),
};
"""


class ScriptFailed(Exception):
    """`main()` threw: Google shows the run as failed, with this text."""


class Killed(Exception):
    """Google ended the run, or its machine died; nothing of the script ran any more."""


@dataclass(frozen=True)
class Reply:
    """What the script gets; by default from something between it and the server."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "<html>something in the way</html>"


Answer = int | Reply | Literal["network", "lost"]


class _Thrown(Exception):
    """Thrown into the script."""


@dataclass
class Request:
    """What the script asked, and the status it got; 0 for none."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int = 0


@dataclass
class Upload:
    """A CSV as Google would get it."""

    columns: list[str]
    options: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    offline: bool = False
    file_name: str = ""
    applied: bool = False


@dataclass
class Script:
    """An installed script: its settings, what spoils its runs, and what it did."""

    file: ClassVar[Path] = FILE
    more_of_google: ClassVar[str] = ""  # objects that only another script needs

    base_url: str
    site_id: str
    key: str
    config: dict[str, str] | None = None  # what stands at its top; its properties otherwise
    preview: bool = False
    time_zone: str = "Europe/Istanbul"
    seed: int = 1
    page_rows: int = 1_000

    # What spoils a run
    in_the_way: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    before: dict[str, Callable[[], object]] = field(default_factory=dict)  # once, by path
    rewrite: Callable[[Any], Any] = lambda rows: rows  # of what is exported
    apply_throws: str = ""
    apply_takes_ms: int = 0
    dies: Moment | None = None
    actions: list[dict[str, Any]] | str | None = None  # None: listed lately; text: it throws
    reconcile: str = ""  # the option
    reports: dict[str, list[dict[str, Any]] | str] = field(default_factory=dict)  # by resource

    # What it did
    requests: list[Request] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    sleeps: list[int] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)  # that it set
    now_ms: int = START_MS
    dead: bool = False

    def run(self) -> None:
        """Run it once, as the schedule does."""
        self.dead = False
        try:
            self.evaluate("main()")
        except ScriptFailed:
            if not self.dead:
                raise
        if self.dead:
            raise Killed

    def process(self, *rows: dict[str, Any]) -> dict[str, Any]:
        """What the upload engine makes of rows, without a server."""
        return json.loads(self.evaluate(f"JSON.stringify(new UploadEngine().process({json.dumps(rows)}))"))

    def evaluate(self, code: str) -> Any:
        """A line of JavaScript in a fresh copy of the script."""
        chance = random.Random(self.seed)
        with httpx.Client(trust_env=False, verify=False, timeout=60) as client:
            google = _Google(self, client, chance)
            context = quickjs.Context()
            context.add_callable("_host", google.call)
            context.eval(GOOGLE + self.more_of_google)
            size = "const PAGE_ROWS = {};"
            source = self.file.read_text("utf-8")
            assert size.format(1_000) in source
            context.eval(source.replace(size.format(1_000), size.format(self.page_rows)))
            context.eval(f"Object.assign(CONFIG, {json.dumps(self.config or {})})")
            try:
                return context.eval(code)
            except quickjs.JSException as error:
                raise ScriptFailed(str(error)) from None
            finally:
                if google.fault is not None:
                    raise google.fault

    # Looking at what it did

    def requests_to(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def ids(self, path: str) -> list[list[str]]:
        """The ids of each call there that was answered."""
        return [one.body["queueIds"] for one in self.requests_to(path) if one.status == 200]

    def lines(self) -> list[dict[str, Any]]:
        """Every CSV row that was applied."""
        return [row for upload in self.uploads if upload.applied for row in upload.rows]


class _Google:
    """One run's side of the bridge. Python may not raise through the engine, so it answers."""

    def __init__(self, script: Script, client: httpx.Client, chance: random.Random) -> None:
        self.script = script
        self.client = client
        self.chance = chance
        self.fault: Exception | None = None

    def call(self, name: str, args: str) -> str:
        """Do what the script asks of Google; once it is dead, nothing is done any more."""
        if self.script.dead:
            return json.dumps({"thrown": "killed"})
        try:
            answer = getattr(self, f"_{name}", None) or getattr(self.script, f"google_{name}")
            value = answer(*json.loads(args))
        except _Thrown as thrown:
            return json.dumps({"thrown": str(thrown)})
        except Exception as fault:  # noqa: BLE001  # ours, and raised when the engine has ended
            self.fault = fault
            self.script.dead = True
            return json.dumps({"thrown": "killed"})
        return json.dumps({"value": value})

    def _die(self, moment: Moment) -> None:
        if self.script.dies == moment:
            self.script.dies = None
            self.script.dead = True
            raise _Thrown("killed")

    def _now(self) -> int:
        return self.script.now_ms

    def _random(self) -> float:
        return self.chance.random()

    def _sleep(self, ms: float) -> None:
        if ms > LONGEST_SLEEP_MS:
            raise _Thrown("Sleep time is too large")
        self.script.sleeps.append(int(ms))
        self.script.now_ms += int(ms)

    def _log(self, text: str) -> None:
        self.script.logged.append(text)

    def _property(self, name: str) -> str | None:
        if name.startswith(LISTED_AT):
            lately = None if self.script.actions is not None else str(self.script.now_ms)
            return self.script.properties.get(name, lately)
        if self.script.config is not None:
            return None
        stored = {
            "KESIN_BASE_URL": self.script.base_url,
            "KESIN_SITE_ID": self.script.site_id,
            "KESIN_API_KEY": self.script.key,
            "KESIN_RECONCILE": self.script.reconcile,
            **self.script.properties,
        }
        return stored.get(name)

    def _setProperty(self, name: str, text: str) -> None:  # noqa: N802
        assert name.startswith((LISTED_AT, RECONCILED_AT)), "it changes no setting"
        self.script.properties[name] = text

    def _search(self, query: str) -> list[dict[str, Any]]:
        self.script.queries.append(query)
        resource = query.partition(" FROM ")[2].split()[0]
        if resource != "conversion_action":
            found = self.script.reports.get(resource, [])
            if isinstance(found, str):
                raise _Thrown(found)
            return found
        if not isinstance(self.script.actions, list):
            raise _Thrown(str(self.script.actions))
        return [{"conversionAction": action} for action in self.script.actions]

    def _formatDate(self, ms: float, zone: str, form: str) -> str:  # noqa: N802
        assert form == "yyyy-MM-dd"
        return datetime.fromtimestamp(ms / 1_000, ZoneInfo(zone)).date().isoformat()

    def _isPreview(self) -> bool:  # noqa: N802  # Google's name
        return self.script.preview

    def _timeZone(self) -> str:  # noqa: N802
        return self.script.time_zone

    def _newCsvUpload(self, columns: list[str], options: dict[str, Any]) -> int:  # noqa: N802
        self.script.uploads.append(Upload(columns, options))
        return len(self.script.uploads) - 1

    def _append(self, number: int, row: dict[str, Any]) -> None:
        upload = self.script.uploads[number]
        upload.rows.append({name: row[name] for name in upload.columns if name in row})

    def _forOfflineConversions(self, number: int) -> None:  # noqa: N802
        self.script.uploads[number].offline = True

    def _setFileName(self, number: int, name: str) -> None:  # noqa: N802
        self.script.uploads[number].file_name = name

    def _apply(self, number: int) -> None:
        self.script.now_ms += self.script.apply_takes_ms
        if self.script.apply_throws:
            raise _Thrown(self.script.apply_throws)
        if not self.script.uploads[number].offline:
            raise _Thrown("This is no upload of offline conversions")
        self.script.uploads[number].applied = True
        self._die("applied")

    def _fetch(self, url: str, options: dict[str, Any]) -> dict[str, Any]:
        target = httpx.URL(url)
        payload = options.get("payload")
        request = Request(
            method=options.get("method", "get"),
            path=target.path,
            query=dict(target.params),
            headers=options.get("headers", {}),
            body=json.loads(payload) if payload else None,
        )
        if hook := self.script.before.pop(target.path, None):
            hook()
        if target.path == ACK:
            self._die("acking")
        self.script.requests.append(request)
        reply = self._answer(request, url, options)
        request.status = reply.status
        if 300 <= reply.status < 400 and options.get("followRedirects", True):
            raise AssertionError("the key would follow the redirect")
        if target.path == EXPORT and reply.status == 200:
            self._die("exported")
        if target.path == ACK:
            self._die("acked")
        if reply.status >= 400 and not options.get("muteHttpExceptions"):
            raise _Thrown(f"Request failed for {url} returned code {reply.status}")
        return asdict(reply)

    def _answer(self, request: Request, url: str, options: dict[str, Any]) -> Reply:
        waiting = self.script.in_the_way[request.path]
        instead = waiting.pop(0) if waiting else None
        if isinstance(instead, int):
            return Reply(instead)
        if isinstance(instead, Reply):
            return instead
        if instead == NETWORK:
            raise _Thrown(f"Address unavailable: {url}")
        headers = dict(request.headers)
        if "contentType" in options:
            headers["Content-Type"] = options["contentType"]
        try:
            got = self.client.request(request.method, url, headers=headers, content=options.get("payload"))
        except httpx.TransportError as error:
            raise _Thrown(f"Address unavailable: {url}") from error
        if instead == LOST:
            raise _Thrown(f"Timeout: {url}")
        text = got.text
        if request.path == EXPORT and got.status_code == 200:
            text = json.dumps(self.script.rewrite(got.json()))
        # Google gives names as the server wrote them, which may be any way.
        headers = {name.title(): one for name, one in got.headers.items()}
        return Reply(got.status_code, headers, text)
