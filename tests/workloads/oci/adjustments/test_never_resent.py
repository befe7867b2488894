"""Whatever happens: no conversion is sent after an adjustment or a refusal of it."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from kesin.store.records import Filter
from tests.workloads.oci.adjustments.adjusting import QUEUE, post, row, turn
from tests.workloads.oci.fake_google import GoogleServer, Whole
from tests.workloads.oci.own_site import HOUR, MINUTE, ApiSite

PRODUCER = ("sell", "restate", "restate", "retract", "fix", "fix_taken", "refuse")
OTHERS = (
    *("export", "script_uploads", "ack", "upload", "upload", "adjust", "adjust", "adjust"),
    *("recover", "retry", "reset", "mark_failed", "retry_adjustments", "trouble"),
    *("pass_time", "pass_time", "pass_time"),
)
steps = st.one_of(
    st.tuples(st.sampled_from(PRODUCER), st.integers(1, 2)),
    st.tuples(st.sampled_from(OTHERS), st.integers(0, 2)),
    st.tuples(st.just("switch"), st.sampled_from(["api", "data_manager", "script"])),
)


class History:
    """A site and what Google got of it, in order."""

    def __init__(self, site: ApiSite, google: GoogleServer) -> None:
        self.site, self.google = site, google
        self.arrived: list[tuple[str, str, Any]] = []  # kind, order id, value
        self.posted: dict[str, list[Any]] = {}  # adjustments of an order id as they were queued
        self.never: set[str] = set()  # order ids that were retracted before they were sent
        self.exported: dict[str, tuple[str, float]] = {}  # sealed id → order id, and when
        self.claimed: set[str] = set()  # order ids that a script got
        self.people: set[str] = set()  # external ids whose person refused
        self.refused: set[str] = set()  # order ids of theirs
        self.count = 0
        google.row_errors = lambda one: self.give(one["orderId"])
        google.event_errors = self.event
        google.adjustment_errors = lambda one: self.arrive(
            "adjustment", one["orderId"], one.get("restatementValue", {}).get("adjustedValue")
        )

    def arrive(self, kind: str, order: str, value: Any) -> list[Any]:
        self.arrived.append((kind, order, value))
        return []

    def give(self, order: str) -> list[Any]:
        assert order not in self.refused, "nothing of a person who refused"
        return self.arrive("conversion", order, None)

    def event(self, event: dict[str, Any]) -> None:
        """With Data Manager a restatement is the same event: only its value tells."""
        is_new = event["conversionValue"] >= 1_000
        if is_new:
            self.arrive("adjustment", event["transactionId"], event["conversionValue"])
        else:
            self.give(event["transactionId"])

    @property
    def rows(self) -> list[str]:
        return [job.id for job in self.site.jobs()]

    def step(self, name: str, what: Any) -> None:
        getattr(self, name)(what)

    # Producers and operators

    def sell(self, n: int) -> None:
        self.site.post([self.site.row(n, conversionValue=n)])

    def refuse(self, n: int) -> None:
        self.site.post([self.site.row(n, conversionValue=n, consent={"adUserData": "denied"})])
        self.people.add(f"sale-{n}")

    def restate(self, n: int) -> None:
        self.change(n, "RESTATE")

    def retract(self, n: int) -> None:
        self.change(n, "RETRACT")

    def fix(self, _: int, **how: Any) -> None:
        if ids := self.rows:
            self.count += 1
            value = {"conversionValue": 10 + self.count}
            self.site.act("ENQUEUE_FIX", ids[:1], conversion=value, **how)

    def fix_taken(self, _: int) -> None:
        """The same value each time: it is restated again only if another came between."""
        if ids := self.rows:
            order = self.site.job(ids[0]).payload["orderId"]
            changed = self.site.act("ENQUEUE_FIX", ids[:1], taken=True, conversion={"conversionValue": 1_000})
            if changed["affected"] and self.site.state(ids[0]) == "COMPLETED":
                self.posted.setdefault(order, []).append(1_000)

    def press(self, action: str) -> None:
        if ids := self.rows:
            self.site.act(action, ids)

    def retry(self, _: int) -> None:
        self.press("RETRY_SELECTED")

    def reset(self, _: int) -> None:
        self.press("RESET_TO_QUEUED")

    def mark_failed(self, _: int) -> None:
        self.press("MARK_FAILED")

    def retry_adjustments(self, _: int) -> None:
        queue = self.site.oci.service.queues[QUEUE]
        failed = Filter(tenants=(self.site.id,), states=("FAILED",))
        queue.act("RETRY_SELECTED", actor="tests", where=failed)

    def switch(self, channel: str) -> None:
        self.site.change(channel=channel)

    # Senders and the clock

    def export(self, n: int) -> None:
        if self.site.place.channel == "script":
            now = self.site.clock.monotonic()
            items = self.site.export(limit=1 + n)
            assert not {one["orderId"] for one in items} & self.refused
            self.claimed |= {one["orderId"] for one in items}
            self.exported |= {one["id"]: (one["orderId"], now) for one in items}

    def script_uploads(self, _: int) -> None:
        for order, at in self.exported.values():
            if self.site.clock.monotonic() - at < 15 * MINUTE:  # else the script is dead
                self.arrive("conversion", order, None)

    def ack(self, _: int) -> None:
        self.site.ack(list(self.exported))

    def upload(self, _: int) -> None:
        self.site.turn()

    def adjust(self, _: int) -> None:
        turn(self.site)

    def trouble(self, _: int) -> None:
        self.google.then(Whole(503))

    def recover(self, _: int) -> None:
        self.site.wait(16 * MINUTE, "recover", "revive")

    def pass_time(self, n: int) -> None:
        self.site.wait([7 * MINUTE, 16 * MINUTE, 7 * HOUR][n])

    def change(self, n: int, kind: str) -> None:
        self.count += 1
        value = 1_000 + self.count if kind == "RESTATE" else None
        given = row(n, kind, adjustmentId=f"a{self.count}", value=value)
        [result] = post(self.site, given)
        if result["result"] == "queued":
            queue = self.site.oci.service.queues[QUEUE]
            order = queue.find([result["id"]])[result["id"]].payload["orderId"]
            self.posted.setdefault(order, []).append(value)
            if result["outcome"] == "retracted":
                self.never.add(order)

    def check(self) -> None:
        sales = [job.payload for job in self.site.jobs()]
        self.refused |= {one["orderId"] for one in sales if one["externalId"] in self.people}
        adjusted: dict[str, list[Any]] = {}
        sold = set(self.claimed)  # a script may acknowledge what it never uploaded
        for kind, order, value in self.arrived:
            if kind == "conversion":
                assert order not in adjusted, "no conversion after an adjustment of it"
                assert order not in self.never, "nothing of a sale that was retracted unsent"
                sold.add(order)
            else:
                assert order in sold, "nothing for a conversion that was never claimed"
                if adjusted.setdefault(order, [value])[-1] != value:
                    adjusted[order].append(value)
        for order, values in adjusted.items():
            posted = iter(self.posted[order])
            assert all(value in posted for value in values), "in the order they came, one at a time"


@settings(
    max_examples=200 if settings.default.max_examples > 1_000 else 3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=st.booleans(), script=st.lists(steps, min_size=5, max_size=30))
def test_an_adjusted_conversion_never_arrives_again(
    make_api: Callable[..., ApiSite], google: GoogleServer, first: bool, script: list[Any]
):
    google.reset()
    site = make_api()
    try:
        play(History(site, google), script, sends_first=first)
    finally:
        site.change(channel="script")  # its worker sends nothing into the next history


def play(history: History, script: list[Any], *, sends_first: bool) -> None:
    history.sell(1)
    if sends_first:
        history.upload(0)
        history.pass_time(1)
    for name, what in script:
        history.step(name, what)
        history.check()
    history.switch("api")
    for _ in range(3):  # what is left goes out, or waits for a reason
        history.upload(0)
        history.pass_time(2)
        history.adjust(0)
        history.check()
