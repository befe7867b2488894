"""Any order of producers, scripts, operators, our worker and the clock keeps every promise."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kesin.lifecycle.model import declared_edges
from kesin.lifecycle.vocabulary import STAGES
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.uploader import DUPLICATE_CLICK_CODES
from tests.web.conftest import opened
from tests.workloads.oci.google_in_hand import GOOGLE_SAYS
from tests.workloads.oci.histories import SCRIPTS, SITE, SITES, History, TwoSites
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE

NOBODY = "00000000-0000-7000-8000-000000000000"
CATEGORIES = ("VALIDATION", "TRANSIENT", "AUTH", "RATE_LIMIT")
STEPS = 12
HISTORIES = {"sqlite": 1, "postgres": 1}
LONG = {"sqlite": 400, "postgres": 200}  # each takes up to two years, and time ends in 2999
site = st.sampled_from([SITE, SITE, *SITES])
script = st.sampled_from(SCRIPTS)
number = st.integers(1, 6)
version = st.integers(0, 2)
limit = st.sampled_from([8, 1, 3])
category = st.sampled_from(CATEGORIES)
seconds = st.sampled_from([*[16 * MINUTE, 7 * MINUTE, HOUR] * 3, 61, 7 * HOUR, 26 * HOUR, 20 * DAY, 92 * DAY])
recovery = st.sampled_from([STAGES, ("recover",), "cron"])
kind = st.sampled_from(["plain", "plain", "plain", "plain", "revision", "no click", "no name"])
behaviour = st.one_of(
    st.just("take"),
    st.sampled_from(["take", "lose", "leave"]),
    st.sampled_from(["TOO_RECENT_EVENT", "EVENT_NOT_FOUND", "CLICK_NOT_FOUND", *DUPLICATE_CLICK_CODES]).map(
        lambda value: ("conversionUploadError", value)
    ),
    st.sampled_from(GOOGLE_SAYS),
)
troubles = st.sampled_from(
    [
        *[None] * 6,
        ConnectionTrouble("TRANSIENT", "HTTP_503", "Google is away"),
        ConnectionTrouble("RATE_LIMIT", "RESOURCE_EXHAUSTED", "too much", 600.0),
        ConnectionTrouble("AUTH", "INVALID_GRANT", "the token was revoked"),
    ]
)
buttons = st.fixed_dictionaries(
    {"action": st.sampled_from(["RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"])},
    optional={"clearErrors": st.booleans(), "errorCategory": st.sampled_from(CATEGORIES)},
)
filters = st.sampled_from(
    [
        *[{"status": [state]} for state in ("FAILED", "RETRY", "RETRY", "PROCESSING", "QUEUED")],
        {"category": ["TRANSIENT", "VALIDATION"]},
        {},
    ]
)
telling = st.lists(behaviour, min_size=1, max_size=3)
moments = st.sampled_from([*[None] * 3, "reset", "marked", "recovered", "mended", "switched", "unready"])


class Machine(RuleBasedStateMachine):
    """What people, scripts, Google and the clock do, in any order."""

    sites: TwoSites

    def __init__(self):
        super().__init__()
        self.went_well = False
        self.fed = 7  # the next sale that nobody posted
        self.history = History(self.sites)

    def teardown(self):
        if self.went_well:
            self.history.end()

    def check(self):
        self.went_well = False
        self.history.check()
        self.went_well = True

    def rows(self, data, site_id, most=4, liked=()):
        """Some rows, mostly of this site; now and then one of another, or of nobody."""
        own = self.history.of(site_id)
        first = [job_id for job_id, one in own.items() if one.state in liked] * 4
        ids = [*first, *own, *own, *self.history.seen, NOBODY]
        chosen = st.lists(st.sampled_from(ids), min_size=1, max_size=most, unique=True)
        return data.draw(chosen, label="rows")

    def reported(self, data, site_id, script_name):
        """What a script tells of: what it got once, and sometimes something else."""
        got = sorted(self.history.memory[site_id, script_name])
        if got and not data.draw(st.booleans(), label="stray"):
            return data.draw(st.lists(st.sampled_from(got), min_size=1, unique=True, max_size=6), label="rows")
        return self.rows(data, site_id)

    # Producers

    @initialize(numbers=st.lists(number, min_size=1, max_size=4))
    def begin(self, numbers):
        self.history.post(SITE, [self.history.sale(one) for one in numbers])
        self.check()

    @rule(site=site, given=st.lists(st.tuples(number, version, kind), min_size=1, max_size=4))
    def post(self, site, given):
        changes: dict[str, dict[str, Any]] = {
            "plain": {},
            "revision": {"revision": 2},
            "no click": {"gclid": None},
            "no name": {"externalId": None},
        }
        rows = [self.history.sale(n, version, **changes[kind]) for n, version, kind in given]
        self.history.post(site, rows)

    @rule(site=site)
    def a_row_is_enqueued_without_ingest(self, site):
        """No check of ours has seen it, and no channel can send it."""
        self.history.touched = {site}
        stamps = {"conversion_at": self.history.now}
        self.sites.enqueue_raw({"conversionValue": 1}, site=site, stamps=stamps)

    # Scripts

    @rule(site=site, script=script, limit=limit, back=st.booleans())
    def export(self, site, script, limit, back):
        self.come_back(site, back)
        self.history.export(site, script, limit)

    def come_back(self, site, back):
        """The site is opened to its script first; else the script may be refused."""
        if back:
            self.history.switch(site, "script")
            self.resume(site)
            self.feed(site)

    def feed(self, site):
        """Let there be something to do."""
        now = self.history.now
        if not any(one.is_due(now) for one in self.history.of(site).values()):
            new = range(self.fed, self.fed + 3)
            self.fed += 3
            self.history.post(site, [self.history.sale(one) for one in new])
            self.check()

    def resume(self, site):
        for paused in self.history.paused & {"", site}:
            self.history.steer(paused or None, on=False)

    @rule(site=site, script=script, data=st.data())
    def ack(self, site, script, data):
        self.history.ack(site, script, self.reported(data, site, script))

    @rule(site=site, script=script, data=st.data(), category=category)
    def ack_failed(self, site, script, data, category):
        ids = self.reported(data, site, script)
        self.history.ack_failed(site, script, ids, category)

    @rule(site=site, script=script, limit=limit, category=category)
    def a_whole_run(self, site, script, limit, category):
        """Export, deliver the first, fail with the rest."""
        self.come_back(site, back=True)
        before = set(self.history.memory[site, script])
        self.history.export(site, script, limit)
        self.check()
        got = sorted(set(self.history.memory[site, script]) - before)
        self.history.ack(site, script, got[:1])
        self.check()
        self.history.ack_failed(site, script, got[1:], category)

    @rule(site=site, script=script, times=st.integers(1, 5), how=recovery)
    def runs_that_end_nowhere(self, site, script, times, how):
        """Scripts that die after the export, each taken for dead a little later."""
        self.come_back(site, back=True)
        for _ in range(times):
            self.history.export(site, script, 8)
            self.check()
            self.sites.clock.advance(16 * MINUTE)
            if how == "cron":
                self.history.cron("recover-processing")
            else:
                self.history.sweep(*how)
            self.check()

    @rule(site=site, script=script)
    def crash(self, site, script):
        self.history.memory[site, script].clear()

    # Operators

    @precondition(lambda self: self.history.seen)
    @rule(site=site, data=st.data(), how=buttons, words=filters | st.none())
    def press_a_button(self, site, data, how, words):
        chosen = {"ids": self.rows(data, site)} if words is None else {"filter": words}
        self.history.act(site, **chosen, **how, reason="somebody wants it")

    @precondition(lambda self: self.history.seen)
    @rule(site=site, data=st.data(), version=version)
    def correct(self, site, data, version):
        body = {"conversionValue": 100 + version}
        self.history.act(site, "CORRECT", ids=self.rows(data, site, 1, ["FAILED"]), conversion=body)

    @precondition(lambda self: self.history.seen)
    @rule(site=site, data=st.data(), version=st.sampled_from([None, 0, 1, 2]))
    def enqueue_a_fix(self, site, data, version):
        changes = {} if version is None else {"conversion": {"conversionValue": 100 + version}}
        most = 3 if version is None else 1
        self.history.act(site, "ENQUEUE_FIX", ids=self.rows(data, site, most, ["COMPLETED"]), **changes)

    @rule(site=st.sampled_from([None, *SITES]), on=st.sampled_from([False, False, True]))
    def pause_or_resume(self, site, on):
        self.history.steer(site, on=on)

    @rule(site=site, channel=st.sampled_from(["script", "api", "api", "data_manager"]))
    def switch(self, site, channel):
        self.history.switch(site, channel)

    # Our worker

    @rule(telling=telling, trouble=troubles, limit=st.sampled_from([50, 1, 3]), moment=moments)
    def upload(self, telling, trouble, limit, moment):
        """One turn; sometimes something else happens while Google has the rows."""
        self.reach_google(telling, trouble, ready=moment != "unready")
        self.history.turn(limit, moment and (lambda ids: self.meanwhile(moment, ids)))

    @rule(telling=telling, times=st.integers(2, 9), pause_s=st.sampled_from([13 * HOUR, 7 * HOUR]))
    def upload_again_and_again(self, telling, times, pause_s):
        self.resume(SITE)
        self.reach_google(telling, None)
        for _ in range(times):
            self.history.turn(50)
            self.check()
            self.sites.clock.advance(pause_s)
            if not any(one.state == "RETRY" for one in self.history.of(SITE).values()):
                break

    def reach_google(self, telling, trouble, *, ready=True):
        if self.history.channel[SITE] == "script":
            self.history.switch(SITE, "api")
        self.feed(SITE)
        google = self.history.google
        google.telling, google.trouble, google.is_well = telling, trouble, trouble is None
        google.is_ready = ready

    def meanwhile(self, moment, ids):
        history = self.history
        where = self.sites.found(ids[0]).tenant
        body = {"siteId": where, "ids": ids}
        how: dict[str, Any] = {"headers": self.sites.operator}

        def act(action, **fields):
            history.ask("POST", "/api/oci/queue-actions", json={**body, "action": action, **fields}, **how)

        assert moment != "unready", "rows were claimed that could not be sent"
        if moment == "reset":
            act("RESET_TO_QUEUED")
        elif moment == "switched":
            history.switch(where, "script")
        elif moment == "recovered":
            self.sites.clock.advance(121)
            self.sites.sweep("cap", "recover")
            history.touched = set(SITES)
        else:
            act("MARK_FAILED", errorCategory="VALIDATION")
            if moment == "mended":
                body["ids"] = ids[:1]
                act("CORRECT", conversion={"conversionValue": 777})

    # The clock

    @rule(seconds=seconds, stages=st.sampled_from([(), STAGES, *[(one,) for one in STAGES]]))
    def let_time_pass(self, seconds, stages):
        self.sites.clock.advance(seconds)
        if stages:
            self.history.sweep(*stages)

    @rule(minutes=st.sampled_from([0, 15]), cap=st.sampled_from(["none", None, 1, 3]))
    def come_by_cron(self, minutes, cap):
        if cap == "none":
            self.history.cron("recover-processing", min_age_minutes=minutes)
        else:
            how = {} if cap is None else {"max_attempts": cap}
            self.history.cron("attempt-cap", min_age_minutes=minutes, **how)

    # What always holds

    @invariant()
    def every_promise_is_kept(self):
        self.check()


@pytest.fixture(params=HISTORIES)
def sites(request: pytest.FixtureRequest, tmp_path) -> Iterator[TwoSites]:
    with ExitStack() as stack:
        store = opened(request.param, tmp_path, request, stack)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        sites = TwoSites(store, tmp_path)
        stack.enter_context(sites.kept())
        sites.to_google(patch)
        is_long = settings.default.max_examples > 1_000
        sites.histories = (LONG if is_long else HISTORIES)[request.param]
        yield sites


def test_no_history_of_a_site_breaks_a_promise(sites: TwoSites):
    machine = type("Histories", (Machine,), {"sites": sites})
    run_state_machine_as_test(machine, settings=settings(max_examples=sites.histories, stateful_step_count=STEPS))
    declared = {(move.name, source, to) for move, source, to in declared_edges(sites.queue.lifecycle)}
    assert sites.made <= declared
    if sites.histories >= 50:  # fewer need not come about
        missed = declared - sites.made
        assert len(missed) <= 0.4 * len(declared), f"never made: {sorted(missed)}"
