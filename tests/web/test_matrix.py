"""Every route of the app against every kind of caller: the table says who may use it.

A route without a row fails. So does a row without a route, and a caller without a column.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlencode

import pytest

from kesin.foundation.permissions import ROLES, SCOPES, SITE_SCOPES, SITELESS_SCOPES
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.optiplan.labels.ids import order_code
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJobStatus, PdfJobStore
from kesin.workloads.pdf.links import MAX_LINK_S, PdfLinks
from tests.web.conftest import CRON_SECRET, World, by_cookie, opened
from tests.web.dashboard.workloads.rules_form import hidden
from tests.web.matrix import BY_QUEUE, CREDENTIALS, DAY_S, NO_JOB, OTHER, OWN, ROWS, Row, all_routes
from tests.workloads.optiplan.offcut_bodies import BODY
from tests.workloads.optiplan.orders_ready import CUSTOMER, held_order, new_order, planned_order

WORKLOAD_PAGES = ("/dashboard/site/", "/dashboard/pdf", "/dashboard/optiplan")
INVOICE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
WEBHOOKS = {"pdf_webhooks": r"https://hooks\.example\.com/.*", "pdf_webhook_secret": "a secret of the tests"}
REFUSED = {"403", "404"}
IN_PART = {"hx-request": "true"}  # a refusal is a sentence then, not a page with its navigation
Sent = tuple[str, dict[str, Any]]  # a path, and the arguments of the request


class Requests:
    """Sends the case of a row as any of the callers, to a service with a job of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.client
        world.service.live.stop()  # a stream would not end
        self.jobs = {
            "own": world.job(OWN),
            "other": world.job(OTHER),
            "pdf": world.job("somebody", queue="pdf"),
            "row": world.job(
                OWN,
                queue="oci",
                payload={"externalId": "row-1"},
                stamps={"conversion_at": world.service.queues["oci"].now()},
            ),
            "none": NO_JOB,
            "order": planned_order(world.service),
            "held": held_order(world.service),
        }
        self.callers = _callers(world)
        rules = self.client.get("/dashboard/optiplan/rules", headers=world.key("admin"))
        self._rules = hidden(rules.text)
        Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()
        self._headers_of: dict[str, dict[str, str]] = {}

    def send(self, row: Row, caller: str) -> int:
        """Send the row's case as this caller; the status."""
        headers = self._headers(caller, new=row.ends_sessions)
        if row.path.startswith("/dashboard") and row.expected[self.callers[caller][0]] in REFUSED:
            headers |= IN_PART
        if row.path.startswith(WORKLOAD_PAGES):
            path, sent = self._workload_page(row, caller)
        else:
            path, sent = self._request(row, caller)
        if row.path in {"/sign-in", "/sign-out", "/dashboard/look"}:
            headers |= {"sec-fetch-site": "same-origin"}
        return self.client.request(row.method, path, headers=headers, **sent).status_code

    def _request(self, row: Row, caller: str) -> Sent:  # noqa: C901
        path: str = row.path
        sent: dict[str, Any] = {}
        if row.path.startswith("/api/queues/{queue}/"):
            path, sent = self._queue(row)
        elif row.path.startswith("/dashboard/queues/{queue}"):
            path, sent = self._queue_page(row)
        elif row.path == "/dashboard/triage" and row.method == "POST":
            queue, site = BY_QUEUE[row.case]
            jobs = {"all": "1", **site} if row.case == "own" else {"ids": NO_JOB}
            sent = {"data": {"group": urlencode({"queue": queue, "call": "cancel", **jobs})}}
        elif row.path.startswith(("/api/sites", "/api/oci/sites", "/api/oci/manager")):
            path, sent = self._sites(row)
        elif row.path.startswith("/api/oci/"):
            path, sent = path.replace("{code}", "EXPIRED"), self._oci(row, caller)
        elif row.path.startswith("/pdf/"):
            path, sent = self._pdf(row, self._headers(caller, new=False))
        elif row.path.startswith(("/jobs", "/orders", "/customers", "/config", "/rack")):
            path, sent = self._optiplan(row, caller)
        elif row.path.startswith(("/api/jobs/{job_id}", "/dashboard/jobs/{job_id}")):
            path = row.path.replace("{job_id}", self.jobs[row.case])
        elif row.path == "/static":
            path = "/static/docs.js" if row.case == "file" else "/static/..%2f..%2fapp.py"
        elif row.path == "/dashboard/password":
            sent = {"data": {"current": "not the password", "password": "x", "again": "x"}}
        elif row.case == "wrong":
            wrong = {"name": "somebody", "password": "not the password"}
            sent = {"json": wrong} if row.path.startswith("/api") else {"data": wrong}
        return path, sent

    def _headers(self, caller: str, *, new: bool) -> dict[str, str]:
        if new:
            return self.callers[caller][1]()
        if caller not in self._headers_of:
            self._headers_of[caller] = self.callers[caller][1]()
        return dict(self._headers_of[caller])

    def _order(self, row: Row, caller: str) -> str:
        """An order for the case: an action that is permitted has a held one of its own."""
        if row.case == "held" and int(row.expected[self.callers[caller][0]]) < 400:
            return held_order(self.world.service)
        return self.jobs.get(row.case, "")

    def _queue(self, row: Row) -> Sent:
        what = row.path.rpartition("/")[2]
        queue, site = BY_QUEUE.get(row.case, ("task", {}))
        path = row.path.replace("{queue}", queue)
        if row.method == "GET":
            return path, {"params": site}
        if what == "actions":
            chosen: dict[str, Any] = {"action": "cancel", "filter": {"sites": [OWN]}}
            if row.case != "own":
                chosen = {"action": "cancel", "ids": [NO_JOB], "dry_run": row.case == "dry"}
            return path, {"json": chosen}
        if what == "jobs":
            return path, {"json": {"jobs": [{"payload": {}, "site": OWN}]}}
        return path, {"json": site}

    def _queue_page(self, row: Row) -> Sent:
        queue, site = BY_QUEUE[row.case]
        path = row.path.replace("{queue}", queue)
        if row.method == "GET" or row.path.endswith("renewal"):
            return path, {"params": site}
        if row.path.endswith(("pause", "resume")):
            return path, {"data": site}
        chosen = {"all": "1", **site} if row.case == "own" else {"ids": NO_JOB}
        return path, {"data": {"call": "cancel", **chosen}}

    def _pdf(self, row: Row, headers: dict[str, str]) -> Sent:
        """A job of the caller, of another one, or none."""
        kind = "batches" if "batch" in row.path else "webhooks" if "hook" in row.path else "jobs"
        body: dict[str, Any] = {"template_name": "invoice", "variables": INVOICE}
        if kind == "batches":
            body = {"template_name": "invoice", "rows": [INVOICE]}
        if row.path.startswith("/pdf/templates"):
            name = "nothing" if row.case == "none" else "invoice"
            sent = {"json": {"variables": INVOICE}} if row.method == "POST" else {}
            return row.path.replace("{name}", name).replace("{version}", "0" * 64), sent
        if row.case == "new":
            return row.path, {"content": b"x"} if "uploads" in row.path else {"json": body}
        if row.case == "valid":
            return self._link, {}
        job = NO_JOB
        if row.case == "mine":
            created = self.client.post(f"/pdf/{kind}", json=body, headers=headers)
            job = created.headers.get("location", NO_JOB).rpartition("/")[2]
        elif row.case == "other":
            queue = {"jobs": "pdf", "batches": "pdf_batches", "webhooks": "pdf_webhooks"}[kind]
            job = self.world.job("somebody", queue=queue)
        sent = {"json": {}} if row.path.endswith("/links") else {}
        return row.path.format(job_id=job, batch_id=job, webhook_id=job), sent

    @cached_property
    def _link(self) -> str:
        """A link to a PDF whose file is gone."""
        queue, job_id = self.world.service.queues["pdf"], self.world.job("somebody", queue="pdf")
        jobs = PdfJobStore(queue)
        jobs.update_status(job_id, PdfJobStatus.RUNNING)
        job = jobs.update_status(job_id, PdfJobStatus.SUCCEEDED, artifact_key="pdfs/x/1.pdf")
        links = PdfLinks(self.world.settings, queue)
        return links.create(job, MAX_LINK_S, since_s=queue.now() / SECOND_US)[0]

    def _optiplan(self, row: Row, caller: str) -> Sent:
        """Orders, customers and rules."""
        order = new_order()
        path = row.path.replace("{order_id}", order["order_id"])
        path = path.replace("{job_id}", self._order(row, caller))
        path = path.replace("{offcut_id}", "R2")
        bodies = {"new": CUSTOMER if row.path == "/customers" else order, "same": rules_json(default_rules())}
        sent: dict[str, Any] = {"json": bodies[row.case]} if row.case in bodies else {}
        if row.path == "/customers/lookup":
            sent = {"params": {"phone": CUSTOMER["phone"]}}
        elif row.path == "/rack/labels.pdf":
            sent = {"params": {"id": "R2"}}
        return path, sent

    def _workload_page(self, row: Row, caller: str) -> Sent:
        """The pages of workloads: valid forms and files."""
        site = "nowhere" if row.case == "none" else OWN
        job = self._order(row, caller)
        ids = {"site_id": site, "token": "nothing", "job_id": job, "action": "approve"}
        ids |= {"name": "invoice", "version": "0" * 64, "number": "0"}
        ids |= {"label": f"{order_code(job)}-1-1"} if "{label}" in row.path else {}
        ids |= {"offcut_id": "R2", "action": "scrap"} if "/rack" in row.path else {}
        paged = {**INVOICE, "number": "sent by the page"}
        invoice = {"template": "invoice", "source": json.dumps(paged), "do": "json"}
        forms: dict[str, Any] = {
            "preview": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "actions": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "rows": {"do": "add"},
            "customers": {**CUSTOMER, "phone": "0555 000 00 99"},
            "rack": {name: str(value) for name, value in BODY.items()},
            "remove": {"phone": "0555 000 00 99"},
            "rules": self._rules,
        }
        what = row.path.rpartition("/")[2]
        sent: dict[str, Any] = {}
        if what == "dialog":
            sent = {"params": {"do": "delete", "version": "none"}}
        elif row.path == "/dashboard/pdf/templates" and row.method == "POST":
            sent = {"data": {"do": "upload", "name": "invoice"}, "files": {"file": ("t.zip", "no")}}
        elif what in {"fixes", "import"}:
            sent = {"files": {"file": ("list.csv", "externalId,gclid\nnone,x\n", "text/csv")}}
        elif row.method == "POST":
            sent = {"data": invoice if row.case == "new" else forms.get(what, {})}
        return row.path.format(**ids), sent

    def _sites(self, row: Row) -> Sent:
        """The administration of sites: nothing that other rows need is changed."""
        site_id = "nowhere" if row.case == "none" else OWN
        bodies: dict[str, Any] = {
            "sites": {"id": OWN},
            "keys": {"name": "matrix", "scopes": ["read"]},
            "credentials": CREDENTIALS["credentials"],
        }
        body = bodies.get(row.path.rpartition("/")[2], {})
        sent = {} if row.method in {"GET", "DELETE"} else {"json": body}
        return row.path.format(site_id=site_id, key_id="nothing"), sent

    def _oci(self, row: Row, caller: str) -> dict[str, Any]:
        what = row.path.removeprefix("/api/oci/")
        site = {"siteId": "nowhere" if row.case == "none" else OWN}
        if row.method == "GET":
            claim = {"markAsExported": "true"}
            extra = {"key": claim, "cookie": claim, "multi": {"scope": "multi"}}
            return {"params": site | extra.get(row.case, {})}
        if what == "conversions":
            return {"params": site, "json": []}
        if what == "credentials/check":
            return {"params": site}
        if row.method == "DELETE":
            if self.callers[caller][0] == "admin":  # each has something to delete
                admin = self.world.key("admin")
                self.client.put(row.path, headers=admin, json={"siteId": OWN, **CREDENTIALS})
            return {"params": site}
        bodies: dict[str, dict[str, Any]] = {
            "ack": {"queueIds": []},
            "ack-failed": {"queueIds": []},
            "credentials": CREDENTIALS,
            "actions": {"actions": []},
            "reconciliation": {"zone": "UTC", "uploads": [], "attributed": []},
            "adjustments": {"adjustments": []},
            "queue-actions": {"action": "RETRY_SELECTED", "ids": [NO_JOB]},
        }
        body = site | bodies.get(what, {})
        return {"json": body | {"action": "ENQUEUE_FIX"} if row.case == "mend" else body}


Callers = dict[str, tuple[str, Callable[[], dict[str, str]]]]


def _callers(world: World) -> Callers:
    """Name → its column and the function that makes its headers."""
    callers: Callers = {
        "nobody": ("nobody", dict),
        "made-up session": ("nobody", lambda: by_cookie("x" * 43)),
        "made-up key": ("dead", lambda: {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}),
        "cron": ("cron", lambda: {"authorization": f"Bearer {CRON_SECRET}"}),
        "wrong cron": ("dead", lambda: {"authorization": f"Bearer {CRON_SECRET}x"}),
    }
    return callers | _ended(world) | _users(world) | _keys(world)


def _ended(world: World) -> Callers:
    expired_key = world.key("admin", days=1)
    world.person("gone", "admin")
    expired_token = world.token("gone")
    world.clock.advance(2 * DAY_S)
    revoked = world.raw_key("admin")
    world.revoke(revoked)
    ended = world.token("gone")
    world.accounts.sign_out(world.accounts.session_actor(ended, "") or pytest.fail("gone"), ended)
    return {
        "expired key": ("dead", lambda: dict(expired_key)),
        "expired session": ("nobody", lambda: by_cookie(expired_token)),
        "revoked key": ("dead", lambda: {"x-api-key": revoked}),
        "ended session": ("nobody", lambda: by_cookie(ended)),
    }


def _users(world: World) -> Callers:
    permitted: dict[str, dict[str, Any]] = {
        "no": {},
        "que": {"queues": ["pdf"]},
        "oth": {"sites": [OTHER]},
        "own": {"sites": [OWN]},
        "all": {"all_sites": True},
    }
    callers: Callers = {}
    for role in ROLES:
        for where, permissions in permitted.items():
            name = world.person(f"{role}-{where}", role, **permissions)
            column = "admin" if role == "admin" else f"{role[0]}.{where}"
            callers[name] = (column, lambda name=name: world.cookie(name))  # type: ignore[misc]
    return callers


def _keys(world: World) -> Callers:
    by_site = {"oci:ingest": "i", "oci:script": "s", "read": "v", "operate": "o"}
    columns = {"metrics": "metr", "pdf": "pdf", "optiplan": "opti", "reveal": "reve"}
    columns |= {"pdf:html": "reve"}
    columns |= {"admin": "admin"}
    callers: Callers = {}
    for scope in SCOPES:
        for where, site in {"own": OWN, "oth": OTHER, "all": None}.items():
            if scope in (SITE_SCOPES if site is None else SITELESS_SCOPES):
                continue
            column = f"{by_site[scope]}.{where}" if scope in by_site else columns[scope]
            key = world.key(scope, site=site)
            callers[f"key {scope} {where}"] = (column, lambda key=key: dict(key))  # type: ignore[misc]
    return callers


@pytest.fixture(scope="module")
def requests(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[Requests]:
    folder = tmp_path_factory.mktemp("matrix")
    with ExitStack() as stack:
        store = opened("sqlite", folder, request, stack)
        world = World(store, folder, secret_keys="first:" + "A" * 43, **WEBHOOKS)
        world.site(OWN, OTHER)
        stack.enter_context(world.kept())
        yield Requests(world)


def test_every_route_of_the_app_is_in_the_table_and_every_row_is_a_route(world):
    rows = {(row.method, row.path) for row in ROWS}
    missing = all_routes(world.app) - rows
    assert not missing, f"decide who may use {sorted(missing)}: give each a row in TABLE"
    assert rows == all_routes(world.app)

    @world.app.get("/api/back-door")
    def back_door() -> None: ...

    assert all_routes(world.app) - rows == {("GET", "/api/back-door")}
    documented = {
        (method.upper(), path) for path, methods in world.app.openapi()["paths"].items() for method in methods
    }
    assert documented <= all_routes(world.app)


def test_every_caller_has_a_column_and_every_column_a_caller(requests):
    assert {column for column, _ in requests.callers.values()} == set(ROWS[0].expected)


@pytest.mark.parametrize("path", dict.fromkeys(row.path for row in ROWS))
def test_the_table_says_who_may_use_a_route(path: str, requests: Requests, request: pytest.FixtureRequest):
    wrong = []
    for row in (row for row in ROWS if row.path == path):
        in_column: dict[str, list[str]] = {}
        for caller, (column, _) in requests.callers.items():
            if _concerns(row, caller, column):
                in_column.setdefault(column, []).append(caller)
        if not request.config.getoption("--long"):
            in_column = _sample(row, in_column)
        assert in_column
        for column, callers in in_column.items():
            for caller in callers:
                status = requests.send(row, caller)
                if status != int(row.expected[column]):
                    wrong.append((str(row), caller, status, row.expected[column]))
    assert wrong == []


def _sample(row: Row, in_column: dict[str, list[str]]) -> dict[str, list[str]]:
    """One column of each kind of caller for each of its answers, and one caller of that column.

    Another one at each row: a route that needs another permission is open to many at once. Where
    all get one answer, nobody and one caller. Of the kinds that a route serves alike, the weakest:
    who may do more is served by most other tests.
    """
    n, refused = _places()[str(row)]
    kind_of = _kind if len({*row.expected.values()}) > 1 else "nobody".__eq__
    alike: dict[tuple[str | bool, str], list[str]] = {}
    for column in in_column:
        if column not in refused:
            alike.setdefault((kind_of(column), row.expected[column]), []).append(column)
    served: set[str] = set()
    chosen = []
    for (kind, status), columns in alike.items():
        if kind in {"nobody", "dead"} or int(status) >= 400 or status not in served:
            chosen.append(columns[n % len(columns)])
            served |= {status} if kind != "nobody" else set()  # a redirect to the sign-in page
    return {column: [in_column[column][n % len(in_column[column])]] for column in chosen}


def _kind(column: str) -> str:
    """Viewers, operators, keys of conversions, keys of one purpose; the rest are alone."""
    if column in {"cron", "metr", "pdf", "opti", "reve"}:
        return "purpose"
    return {"s": "i"}.get(kind := column.partition(".")[0], kind)


def _concerns(row: Row, caller: str, column: str) -> bool:
    """Most rows concern all callers; at a few routes a key and a cookie differ."""
    if row.case == "cookie":
        return row.expected[column] != "-" and not caller.startswith("key ")
    if row.case == "key":
        return caller.startswith("key ") or column in {"nobody", "dead", "cron"}
    return True


@cache
def _places() -> dict[str, tuple[int, set[str]]]:
    """Each row's number, and the columns that an earlier row of its route refuses as it does."""
    places: dict[str, tuple[int, set[str]]] = {}
    seen: set[tuple[str, ...]] = set()
    for n, row in enumerate(ROWS):
        refusals = {
            column: (row.method, row.path, column, status)
            for column, status in row.expected.items()
            if status in {"401", "403"}
        }
        before = {column for column, refusal in refusals.items() if refusal in seen}
        assert str(row) not in places
        places[str(row)] = n, before
        if row.case not in {"key", "cookie"}:
            seen.update(refusals.values())
    return places
