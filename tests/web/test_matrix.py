"""Every door of the app against everybody who may knock: who is let in is written down here.

A route without a row fails. So does a row without a route, and anybody without a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kesin.foundation.permissions import ROLES, SCOPES, SITE_SCOPES
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.web.conftest import CRON_SECRET, World, by_cookie, opened
from tests.web.matrix import (
    BY_QUEUE,
    CREDENTIALS,
    DAY_S,
    NO_JOB,
    OTHER,
    OWN,
    ROWS,
    Row,
    doors,
)
from tests.workloads.optiplan.orders_ready import CUSTOMER, held_order, new_order, planned_order

TRADES = ("/dashboard/site/", "/dashboard/pdf", "/dashboard/optiplan")
INVOICE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
HOOKS = {
    "pdf_webhooks": r"https://hooks\.example\.com/.*",
    "pdf_webhook_secret": "a secret of the tests",
}


def _of_trades(row: Row) -> bool:
    return row.path.startswith(TRADES)


class House:
    """A world with a row of each kind and everybody who may knock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.client
        world.service.live.stop()  # a watch would go on for ever
        self.jobs = {
            "own": world.job(OWN),
            "other": world.job(OTHER),
            "pdf": world.job("somebody", queue="pdf"),
            "none": NO_JOB,
            "order": planned_order(world.service),
        }
        self.actors = _actors(world)
        Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()
        self._known: dict[str, dict[str, str]] = {}

    def ask(self, row: Row, actor: str) -> int:
        """Send what the row says as this actor; the status."""
        path, sent = self._of_a_trade(row) if _of_trades(row) else self._asked(row, actor)
        headers = self._headers(actor, anew=row.ends_sessions)
        if row.path in {"/sign-in", "/sign-out", "/dashboard/look"}:
            headers |= {"sec-fetch-site": "same-origin"}
        return self.client.request(row.method, path, headers=headers, **sent).status_code

    def _asked(self, row: Row, actor: str) -> tuple[str, dict[str, Any]]:
        """Where it is asked, and what is sent there."""
        path: str = row.path
        sent: dict[str, Any] = {}
        if row.path.startswith("/api/queues/{queue}/"):
            path, sent = self._of_queue(row)
        elif row.path.startswith("/dashboard/queues/{queue}"):
            path, sent = self._of_queue_page(row)
        elif row.path.startswith("/api/oci/"):
            path, sent = path.replace("{code}", "EXPIRED"), self._of_oci(row, actor)
        elif row.path.startswith("/pdf/"):
            path, sent = self._of_pdf(row, self._headers(actor, anew=False))
        elif row.path.startswith(("/jobs", "/orders", "/customers", "/config")):
            path, sent = self._of_optiplan(row)
        elif row.path.startswith(("/api/jobs/{job_id}", "/dashboard/jobs/{job_id}")):
            path = row.path.replace("{job_id}", self.jobs[row.asked])
        elif row.path == "/static":
            path = "/static/docs.js" if row.asked == "file" else "/static/..%2f..%2fapp.py"
        elif row.asked == "wrong":
            wrong = {"name": "somebody", "password": "not the password"}
            sent = {"json": wrong} if row.path.startswith("/api") else {"data": wrong}
        return path, sent

    def _headers(self, actor: str, *, anew: bool) -> dict[str, str]:
        if anew:
            return self.actors[actor][1]()
        if actor not in self._known:
            self._known[actor] = self.actors[actor][1]()
        return dict(self._known[actor])

    def _of_queue(self, row: Row) -> tuple[str, dict[str, Any]]:
        what = row.path.rpartition("/")[2]
        queue, site = BY_QUEUE.get(row.asked, ("task", {}))
        path = row.path.replace("{queue}", queue)
        if row.method == "GET":
            return path, {"params": site}
        if what == "actions":
            chosen: dict[str, Any] = {"action": "cancel", "filter": {"sites": [OWN]}}
            if row.asked != "own":
                chosen = {"action": "cancel", "ids": [NO_JOB], "dry_run": row.asked == "dry"}
            return path, {"json": chosen}
        if what == "jobs":
            return path, {"json": {"jobs": [{"payload": {}, "site": OWN}]}}
        return path, {"json": site}

    def _of_queue_page(self, row: Row) -> tuple[str, dict[str, Any]]:
        queue, site = BY_QUEUE[row.asked]
        path = row.path.replace("{queue}", queue)
        if row.method == "GET":
            return path, {"params": site}
        if row.path.endswith(("pause", "resume")):
            return path, {"data": site}
        chosen = {"all": "1", **site} if row.asked == "own" else {"ids": NO_JOB}
        return path, {"data": {"call": "cancel", **chosen}}

    def _of_pdf(self, row: Row, headers: dict[str, str]) -> tuple[str, dict[str, Any]]:
        """Something of the asker's own, of somebody else, or of nobody."""
        kind = "batches" if "batch" in row.path else "webhooks" if "hook" in row.path else "jobs"
        asked: dict[str, Any] = {"template_name": "invoice", "variables": INVOICE}
        if kind == "batches":
            asked = {"template_name": "invoice", "rows": [INVOICE]}
        if row.path.startswith("/pdf/templates"):
            name = "nothing" if row.asked == "none" else "invoice"
            sent = {"json": {"variables": INVOICE}} if row.method == "POST" else {}
            return row.path.replace("{name}", name), sent
        if row.asked == "new":
            return row.path, {"json": asked}
        mine = NO_JOB
        if row.asked == "mine":
            new = self.client.post(f"/pdf/{kind}", json=asked, headers=headers)
            mine = new.headers.get("location", NO_JOB).rpartition("/")[2]
        elif row.asked == "other":
            queue = {"jobs": "pdf", "batches": "pdf_batches", "webhooks": "pdf_webhooks"}[kind]
            mine = self.world.job("somebody", queue=queue)
        for name in ("{job_id}", "{batch_id}", "{webhook_id}"):
            row_path = row.path.replace(name, mine)
            if row_path != row.path:
                return row_path, {}
        return row.path, {}

    def _of_optiplan(self, row: Row) -> tuple[str, dict[str, Any]]:
        """One order for all to look at, a held one for each who acts, or none."""
        order = new_order()
        path = row.path.replace("{order_id}", order["order_id"])
        if row.asked == "held":
            path = path.replace("{job_id}", held_order(self.world.service))
        bodies = {
            "new": CUSTOMER if row.path == "/customers" else order,
            "same": rules_json(default_rules()),
        }
        sent: dict[str, Any] = {"json": bodies[row.asked]} if row.asked in bodies else {}
        if row.path == "/customers/lookup":
            sent = {"params": {"phone": CUSTOMER["phone"]}}
        return path.replace("{job_id}", self.jobs.get(row.asked, "")), sent

    def _of_a_trade(self, row: Row) -> tuple[str, dict[str, Any]]:
        """The trades' own pages: forms and files that would do."""
        site = "nowhere" if row.asked == "none" else OWN
        job = (
            held_order(self.world.service) if row.asked == "held" else self.jobs.get(row.asked, "")
        )
        named = {"site_id": site, "token": "nothing", "job_id": job, "action": "approve"}
        paged = {**INVOICE, "number": "asked for on the page"}
        invoice = {"template": "invoice", "source": json.dumps(paged), "do": "json"}
        forms: dict[str, Any] = {
            "preview": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "actions": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "rows": {"do": "add"},
            "customers": {**CUSTOMER, "phone": "0555 000 00 99"},
            "remove": {"phone": "0555 000 00 99"},
            "rules": {"source": json.dumps(rules_json(default_rules()))},
        }
        what = row.path.rpartition("/")[2]
        sent: dict[str, Any] = {}
        if what in {"fixes", "import"}:
            sent = {"files": {"file": ("list.csv", "externalId,gclid\nnone,x\n", "text/csv")}}
        elif row.method == "POST":
            sent = {"data": invoice if row.asked == "new" else forms.get(what, {})}
        return row.path.format(**named), sent

    def _of_oci(self, row: Row, actor: str) -> dict[str, Any]:
        what = row.path.removeprefix("/api/oci/")
        site = {"siteId": "nowhere" if row.asked == "none" else OWN}
        if row.method == "GET":
            claim = {"markAsExported": "true"}
            extra = {"key": claim, "cookie": claim, "multi": {"scope": "multi"}}
            return {"params": site | extra.get(row.asked, {})}
        if what == "conversions":
            return {"params": site, "json": []}
        if what == "credentials/check":
            return {"params": site}
        if row.method == "DELETE":
            if self.actors[actor][0] == "admin":  # each finds something to drop
                boss = self.world.key("admin")
                self.client.put(row.path, headers=boss, json={"siteId": OWN, **CREDENTIALS})
            return {"params": site}
        bodies: dict[str, dict[str, Any]] = {
            "ack": {"queueIds": []},
            "ack-failed": {"queueIds": []},
            "credentials": CREDENTIALS,
            "queue-actions": {"action": "RETRY_SELECTED", "ids": [NO_JOB]},
        }
        body = site | bodies.get(what, {})
        return {"json": body | {"action": "ENQUEUE_FIX"} if row.asked == "mend" else body}


Actors = dict[str, tuple[str, Callable[[], dict[str, str]]]]


def _actors(world: World) -> Actors:
    """Name → the column and what makes the headers."""
    actors: Actors = {
        "nobody": ("nobody", dict),
        "made-up session": ("nobody", lambda: by_cookie("x" * 43)),
        "made-up key": ("dead", lambda: {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}),
        "cron": ("cron", lambda: {"authorization": f"Bearer {CRON_SECRET}"}),
        "wrong cron": ("dead", lambda: {"authorization": f"Bearer {CRON_SECRET}x"}),
    }
    _ended(world, actors)
    _people(world, actors)
    _keys(world, actors)
    return actors


def _ended(world: World, actors: Actors) -> None:
    over = world.key("admin", days=1)
    world.person("gone", "admin")
    old = world.token("gone")
    world.clock.advance(2 * DAY_S)
    actors["expired key"] = ("dead", lambda: dict(over))
    actors["expired session"] = ("nobody", lambda: by_cookie(old))
    revoked = world.raw_key("admin")
    world.revoke(revoked)
    actors["revoked key"] = ("dead", lambda: {"x-api-key": revoked})
    ended = world.token("gone")
    world.accounts.sign_out(world.accounts.session_actor(ended, "") or pytest.fail("gone"), ended)
    actors["ended session"] = ("nobody", lambda: by_cookie(ended))


def _people(world: World, actors: Actors) -> None:
    may: dict[str, dict[str, Any]] = {
        "no": {},
        "que": {"queues": ["pdf"]},
        "oth": {"sites": [OTHER]},
        "own": {"sites": [OWN]},
        "all": {"all_sites": True},
    }
    for role in ROLES:
        for where, rights in may.items():
            name = world.person(f"{role}-{where}", role, **rights)
            column = "admin" if role == "admin" else f"{role[0]}.{where}"
            actors[name] = (column, lambda name=name: world.cookie(name))  # type: ignore[misc]


def _keys(world: World, actors: Actors) -> None:
    columns = {
        "oci:ingest": "i",
        "oci:script": "s",
        "metrics": "metr",
        "pdf": "pdf",
        "read": "v",
        "operate": "o",
        "admin": "admin",
    }
    for scope in SCOPES:
        for where, site in {"own": OWN, "oth": OTHER, "all": None}.items():
            if site is None and scope in SITE_SCOPES:
                continue
            column = columns.get(scope, "trade")
            column += f".{where}" if column in {"i", "s", "v", "o"} else ""
            key = world.key(scope, site=site)
            actors[f"key {scope} {where}"] = (column, lambda key=key: dict(key))  # type: ignore[misc]


@pytest.fixture(scope="module")
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("matrix")
    with ExitStack() as stack:
        keys = "first:" + "A" * 43
        world = World(opened("sqlite", folder, request, stack), folder, secret_keys=keys, **HOOKS)
        world.site(OWN, OTHER)
        stack.enter_context(world.kept())
        yield House(world)


def test_every_door_of_the_app_is_in_the_table(world):
    missing = doors(world.app) - {(row.method, row.path) for row in ROWS}
    assert not missing, f"decide who may use {sorted(missing)}: give each a row in TABLE"


def test_every_row_of_the_table_is_a_door(world):
    assert {(row.method, row.path) for row in ROWS} <= doors(world.app)


def test_a_new_door_would_be_noticed(world):
    @world.app.get("/api/back-door")
    def back_door() -> None: ...

    assert ("GET", "/api/back-door") in doors(world.app)


def test_what_the_schema_tells_are_the_doors_found(world):
    told = {
        (method.upper(), path)
        for path, methods in world.app.openapi()["paths"].items()
        for method in methods
    }
    assert told <= doors(world.app)


def test_everybody_has_a_column_and_every_column_somebody(house):
    assert {column for column, _ in house.actors.values()} == set(ROWS[0].expected)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_is_let_in(row: Row, house: House, request: pytest.FixtureRequest):
    concerned: dict[str, list[str]] = {}
    for actor, (column, _) in house.actors.items():
        if _concerns(row, actor, column):
            concerned.setdefault(column, []).append(actor)
    if not request.config.getoption("--long"):  # one of each column, at each door another one
        turn = ROWS.index(row)
        concerned = {column: [those[turn % len(those)]] for column, those in concerned.items()}
    expected = {
        actor: int(row.expected[column]) for column, those in concerned.items() for actor in those
    }
    assert expected
    assert {actor: house.ask(row, actor) for actor in expected} == expected


def _concerns(row: Row, actor: str, column: str) -> bool:
    """All rows concern everybody, but a few: some doors differ by what was shown."""
    if row.asked == "cookie":
        return row.expected[column] != "-" and not actor.startswith("key ")
    if row.asked == "key":
        return actor.startswith("key ") or column in {"nobody", "dead", "cron"}
    return True
