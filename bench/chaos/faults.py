"""The three faults, each at a point of the work and not of the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.crew import Crew
from bench.chaos.journal import Journal, Story
from bench.chaos.process import side_named
from bench.chaos.settings import (
    AT_ONCE,
    DOWN_S,
    JOB_S,
    JOBS,
    KILLS_AT,
    LEASE_S,
    LONG_JOB_S,
    LONG_JOBS,
    LOOK_S,
    OUTAGE_AT,
    PATIENCE_S,
    SENT_AHEAD,
)
from bench.chaos.sides.side import Side
from bench.chaos.verdict import Verdict, judge

GLANCE_S = 0.1
STILL_S = 1.0


@dataclass(slots=True)
class Server:
    """How to end and start what the queue is kept in."""

    end: Callable[[], None]
    start: Callable[[], None]


class Scene:
    """One queue, its crew and its story."""

    def __init__(self, side: Side, where: str, crew: Crew) -> None:
        self.side = side
        self.where = where
        self.crew = crew
        self.story = Story(crew.journal)

    def until(self, what: Callable[[], bool], patience_s: float) -> bool:
        """Wait for something, and look after the crew meanwhile."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            self.crew.tend()
            self.story.read()
            if what():
                return True
            time.sleep(GLANCE_S)
        return False

    def at_rest(self) -> bool:
        """Nothing is sent, nothing is in anybody's hands, nothing is left."""
        if self.crew.sending or any(self.story.open(pid) for pid in self.crew.pids):
            return False
        with suppress(Exception):  # a server that is away says nothing
            return self.side.left(self.where) == 0
        return False

    def rest(self) -> None:
        """Wait until all is at rest and stays so, or for as long as patience lasts."""
        until = time.monotonic() + PATIENCE_S
        while (patience_s := until - time.monotonic()) > 0:
            self.until(self.at_rest, patience_s)
            if not self.until(lambda: not self.at_rest(), STILL_S):
                return


def killed(scene: Scene, _server: Server | None) -> float:
    """SIGKILL one worker after the other, while the others work."""
    for part in KILLS_AT:
        scene.until(lambda part=part: scene.story.ends >= JOBS * part, PATIENCE_S)  # type: ignore[misc]
        scene.until(lambda: any(map(scene.story.open, scene.crew.pids)), PATIENCE_S)
        scene.crew.kill(next(pid for pid in scene.crew.pids if scene.story.open(pid)))
        fault = time.time()
    return fault


def outage(scene: Scene, server: Server | None) -> float:
    """End the server in the middle, without a goodbye, and start it again."""
    assert server is not None
    scene.until(lambda: scene.story.ends >= JOBS * OUTAGE_AT, PATIENCE_S)
    server.end()
    scene.until(lambda: False, DOWN_S)
    server.start()
    return time.time()


def stopped(scene: Scene, _server: Server | None) -> float:
    """SIGSTOP a worker until somebody else is in the middle of one of its jobs, then SIGCONT."""
    story, crew = scene.story, scene.crew
    scene.until(lambda: any(len(story.open(pid)) >= AT_ONCE for pid in crew.pids), PATIENCE_S)
    victim = max(crew.pids, key=lambda pid: len(story.open(pid)))
    crew.stop(victim)
    fault = time.time()
    story.read()
    held = story.open(victim)
    scene.until(
        lambda: any(run.pid != victim and run.began > fault for job in held for run in story.runs[job]),
        LEASE_S + 2 * LOOK_S + 2 * LONG_JOB_S,
    )
    crew.go_on(victim)
    return fault


FAULTS = {"killed": killed, "outage": outage, "stopped": stopped}


def run(name: str, fault: str, where: str, folder: Path, server: Server | None) -> Verdict:
    """One queue under one fault."""
    side = side_named(name)
    side.prepare(where)
    long = fault == "stopped"
    jobs, ahead = (LONG_JOBS, LONG_JOBS) if long else (JOBS, SENT_AHEAD)
    with Crew(name, where, folder, LONG_JOB_S if long else JOB_S) as crew:
        journal = Journal(crew.journal)
        for job in side.send(where, ahead):
            journal.note("sent", job)
        scene = Scene(side, where, crew)
        if jobs > ahead:
            crew.send(jobs - ahead)
        crew.start()
        at = FAULTS[fault](scene, server)
        scene.rest()
    scene.story.read()
    return judge(scene.story, side.fates(where), at, crew.gone)
