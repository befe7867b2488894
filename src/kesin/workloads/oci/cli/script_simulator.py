"""`kesin oci simulate-script`: the Google Ads script played against a running server."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import typer

from kesin.foundation.problems import Invalid, Problem, Unavailable
from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.foundation.text import canonical_json
from kesin.lifecycle.errors import Category
from kesin.workloads.oci.cli.context import AsJson, SiteOption
from kesin.workloads.oci.script import MOST

Crash = Literal["after-export", "after-upload", "before-ack"]

CRASHES: Final[tuple[Crash, ...]] = ("after-export", "after-upload", "before-ack")
VERSION: Final = "simulator"
MOST_PAGES: Final = 10_000  # no loop without an end
TIMEOUT_S: Final = 30.0
_OK: Final = 200
_FAULTS: Final = {
    "MISSING_CLICK_ID": "simulated: none of gclid, wbraid, gbraid is there",
    "INVALID_CLICK_ID_FORMAT": "simulated: this is no click id",
    "MISSING_TIME": "simulated: there is no conversionTime",
    "INVALID_TIME_FORMAT": "simulated: this is no time",
    "INVALID_CONVERSION_VALUE": "simulated: this is no amount",
}
_SAID: Final = ("orderId", "gclid", "wbraid", "gbraid", "conversionName", "conversionValue")
_HINTS: Final = {
    401: "the key is wrong, over or revoked",
    403: "the key needs the scope oci:script of this very site",
    404: "is this the address of `kesin serve`, and the site's right name?",
    429: "wait a little: KESIN_RATE_PER_S is the limit",
}


class Heard(NamedTuple):
    """What the server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: Any


Send = Callable[[str, str, Mapping[str, Any] | None], Heard]  # method, path, JSON


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did, as the script itself would count it."""

    exported: int = 0
    acked: int = 0
    failed: int = 0
    crashed: Crash | None = None
    refused: int = 0  # of what it reported, by the server
    paused: bool = False


class ScriptSimulator:
    """A script installed for one site. The same chance gives the same runs."""

    def __init__(
        self,
        url: str,
        site: str,
        key: str,
        *,
        chance: random.Random,
        fail_share: float = 0.0,  # of the rows: they cannot be sent
        upload_error_share: float = 0.0,  # of the pages: the upload throws
        limit: int = MOST,
        pages: int = MOST_PAGES,  # a run takes at most
        send: Send | None = None,  # another way to the doors than HTTP
    ) -> None:
        self._site = site
        self._chance = chance
        self._salt = chance.getrandbits(64)
        self._fail_share = fail_share
        self._upload_error_share = upload_error_share
        self._limit = limit
        self._pages = pages
        self._send = send or over_http(url, key)
        self.uploaded: Counter[str] = Counter()  # order id → how often Google would have got it

    @property
    def twice(self) -> int:
        """Conversions that were uploaded more than once; Google counts an order id once."""
        return sum(times > 1 for times in self.uploaded.values())

    def run(self, crash: Crash | None = None) -> Ran:
        """Page after page until nothing waits or an upload throws; ``crash`` ends the first."""
        exported = acked = failed = refused = 0
        crashed: Crash | None = None
        paused = False
        for _ in range(self._pages):
            rows, paused = self._export()
            if not rows:
                break
            exported += len(rows)
            if crash == "after-export":
                crashed = crash
                break
            sent, faults, threw = self._upload(rows)
            if crash == "after-upload":
                crashed = crash
                break
            for (code, category), ids in faults.items():
                message = _FAULTS.get(code, "simulated: Google did not take the upload")
                told = {"errorCode": code, "errorMessage": message, "errorCategory": category}
                refused += self._report("/api/oci/ack-failed", ids, told)
                failed += len(ids)
            if crash == "before-ack":
                crashed = crash
                break
            if sent:
                refused += self._report("/api/oci/ack", sent, {})
                acked += len(sent)
            if threw:
                break
        ran = Ran(exported, acked, failed, crashed, refused, paused)
        if crashed is None:
            self._heartbeat(ran)
        return ran

    def _export(self) -> tuple[list[dict[str, Any]], bool]:
        heard = self._ask(
            "GET",
            f"/api/oci/google-ads-export?siteId={quote(self._site, safe='')}"
            f"&markAsExported=true&limit={self._limit}",
        )
        if not isinstance(heard.body, list):
            raise Problem("the export is no list: is this the address of `kesin serve`?")
        return heard.body, "x-kesin-paused" in heard.headers

    def _upload(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[list[str], dict[tuple[str, str], list[str]], bool]:
        """The ids Google would have now, the others by reason, and whether the upload threw."""
        throws = self._chance.random() < self._upload_error_share
        sent: list[Mapping[str, Any]] = []
        faults: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            code = self._fault(row)
            if code:
                faults.setdefault((code, Category.VALIDATION.value), []).append(row["id"])
            else:
                sent.append(row)
        if throws and sent:
            thrown = ("UPLOAD_EXCEPTION", Category.TRANSIENT.value)
            return [], {**faults, thrown: [row["id"] for row in sent]}, True
        self.uploaded.update(row["orderId"] for row in sent)
        return [row["id"] for row in sent], faults, False

    def _fault(self, row: Mapping[str, Any]) -> str | None:
        """Why it cannot be sent: the same on every try, until value, name or click is mended."""
        told = canonical_json({name: row.get(name) for name in _SAID})
        fate = random.Random(f"{self._salt}{told}")
        return fate.choice([*_FAULTS]) if fate.random() < self._fail_share else None

    def _report(self, path: str, ids: Sequence[str], more: Mapping[str, str]) -> int:
        heard = self._ask("POST", path, {"siteId": self._site, "queueIds": list(ids), **more})
        return len(heard.body["refused"])

    def _heartbeat(self, ran: Ran) -> None:
        told = {"exported": ran.exported, "acked": ran.acked, "failed": ran.failed}
        body = {"siteId": self._site, "scriptVersion": VERSION, **told}
        self._ask("POST", "/api/oci/script-heartbeat", body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Heard:
        heard = self._send(method, path, body)
        if heard.status == _OK:
            return heard
        error = heard.body.get("error") if isinstance(heard.body, dict) else None
        said = error.get("message", "") if isinstance(error, dict) else ""
        told = f"{heard.status}: {said}" if said else str(heard.status)
        hint = _HINTS.get(heard.status, "")
        raise Problem(
            f"{path.partition('?')[0]} answered {told}" + (f" ({hint})" if hint else ""),
            code="script_refused",
        )


def over_http(url: str, key: str, *, timeout_s: float = TIMEOUT_S) -> Send:
    """The doors of a running server. The key goes to this server only: nothing is followed."""
    base = checked_url(url)
    opener = build_opener(ProxyHandler({}), _Stay)

    def send(method: str, path: str, body: Mapping[str, Any] | None) -> Heard:
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-api-key": key, "content-type": "application/json"}
        request = Request(base + path, data, headers, method=method)  # noqa: S310  # checked above
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return _heard(answer.status, answer.headers.items(), answer.read())
        except HTTPError as refused:
            with refused:
                return _heard(refused.code, refused.headers.items(), refused.read())
        except (URLError, HTTPException, OSError) as problem:
            why = getattr(problem, "reason", None) or problem
            raise Unavailable(f"no answer from {base} ({why}): is `kesin serve` running?") from None

    return send


class _Stay(HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _heard(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Heard:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    return Heard(status, {name.lower(): value for name, value in headers}, told)


def checked_url(url: str) -> str:
    """The address without its last slash; raises Invalid for what is none."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
        parts = urlsplit("")
    if not fits or parts.username is not None or parts.query or parts.fragment:
        raise Invalid(f"{url!r} is no address of a server, like http://127.0.0.1:8000")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


MOST_RUNS: Final = 1_000
_MOST_KEY_BYTES: Final = 1_000
_NEVER: Final = "it acknowledges rows that never went to Google: they count as delivered ever after"


def simulate_script(
    *,
    site: SiteOption,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where `kesin serve` is, http://127.0.0.1:8000.")
    ],
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="A file with a key for oci:script."),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Or the environment variable that holds it."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, max=MOST_RUNS, metavar="N", help="Run so many times.")
    ] = 1,
    crash: Annotated[
        list[str] | None,
        typer.Option(
            metavar="after-export|after-upload|before-ack",
            help="Die there; repeatable: the first is for the first run, and so on.",
        ),
    ] = None,
    fail_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Of the rows, report as failed.")
    ] = 0.1,
    upload_error_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Of the uploads, let throw.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same runs.")] = 1,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Rows of one export.")
    ] = MOST,
    yes_really: Annotated[
        bool, typer.Option("--yes-really", help="Also against another machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play the Google Ads script, for tests only.

    Against a running server: it takes rows over HTTP, uploads nothing, and acknowledges them all
    the same, so whatever it touches is lost for Google. It fails and crashes as told: what a
    crashed run held comes back when its claim has run out. Refuses every server but one on this
    machine.
    """
    base = checked_url(url)
    if not is_loopback(base) and not yes_really:
        raise Invalid(f"{base} is another machine, and {_NEVER}; --yes-really does it")
    crashes = [_crash(one) for one in crash or ()]
    if len(crashes) > runs:
        raise Invalid(f"{len(crashes)} crashes need as many runs: --runs {len(crashes)}")
    key = _key(key_file, key_env)
    warn(f"this is no script of Google's: {_NEVER}")
    script = ScriptSimulator(
        base,
        site,
        key,
        chance=random.Random(seed),
        fail_share=fail_share,
        upload_error_share=upload_error_share,
        limit=limit,
    )
    done = [script.run(crashes[n] if n < len(crashes) else None) for n in range(runs)]
    if as_json:
        uploaded = {"conversions": len(script.uploaded), "more_than_once": script.twice}
        say_json({"runs": [asdict(one) for one in done], "uploaded": uploaded})
        return
    _print(done)
    told = f"{len(script.uploaded)} conversions would be at Google, {script.twice} of them sent"
    say(f"{told} more than once under the same orderId, which Google counts once")


def _crash(word: str) -> Crash:
    for one in CRASHES:
        if one == word:
            return one
    raise Invalid(f"a script dies {', '.join(CRASHES[:-1])} or {CRASHES[-1]}, not {word!r}")


def _print(done: list[Ran]) -> None:
    print_table(
        ("run", "exported", "acked", "failed", "refused", "end"),
        [
            (
                number,
                one.exported,
                one.acked,
                one.failed,
                one.refused,
                f"crashed {one.crashed}" if one.crashed else "paused" if one.paused else "well",
            )
            for number, one in enumerate(done, 1)
        ],
    )


def _key(file: Path | None, variable: str | None) -> str:
    if (file is None) == (variable is None):
        raise Invalid(
            "say where the key is, with --key-file or --key-env; "
            "`kesin key create --scope oci:script --site SITE` makes one"
        )
    if file is not None:
        with file.open("rb") as source:
            key = source.read(_MOST_KEY_BYTES).decode("utf-8", "replace").strip()
    else:
        key = os.environ.get(variable or "", "").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        where = file if file is not None else f"the variable {variable}"
        raise Problem(f"there is no key in {where}")
    return key
