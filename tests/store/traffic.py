"""Random traffic: new jobs, claims, right and wrong moves, sweeps, and a clock that may jump."""

from __future__ import annotations

import random
from typing import Any

from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from tests.store.scene import DAY, NOW, Scene

CODES = ("BROWSER_LAUNCH_FAILED", "E_XML_INVALID", "E_OPERATOR_TRIGGER_REQUIRED", "UNKNOWN")


def traffic(scene: Scene, chance: random.Random, *, steps: int, jumps: bool = False) -> None:
    """Drive the queue with whatever its lifecycle has; the store refuses what may not be."""
    calls = [
        (move.action, role)
        for move in scene.lifecycle.moves
        if not (move.creates or move.claims or move.prunes or move.chained)
        for role in move.by
        if role != "clock"
    ]
    known: list[Job] = []
    for _ in range(steps):
        match chance.choice(("enqueue", "enqueue", "claim", "claim", *["apply"] * 3, "sweep")):
            case "enqueue":
                scene.enqueue(*(new_job(scene, chance) for _ in range(chance.randint(1, 5))))
            case "claim":
                known += scene.claim(chance.randint(1, 4), worker=f"w{chance.randint(1, 3)}")
            case "apply" if known:
                call, role = chance.choice(calls)
                jobs = chance.sample(known, min(len(known), chance.randint(1, 4)))
                changes = [change(job, scene, chance, role) for job in jobs]
                scene.apply(call, changes, role=role, actor=role)
            case "sweep":
                move = chance.choice(scene.lifecycle.scheduled_moves)
                scene.store.sweep(scene.queue, move, limit=chance.randint(1, 5), now=scene.now)
        low = -DAY if jumps else 0
        scene.clock.time_us += chance.choice((0, 1, 10**6, 10**8, chance.randint(low, DAY)))
    for move in scene.lifecycle.scheduled_moves:
        scene.store.sweep(scene.queue, move, limit=1_000, now=scene.now)


def new_job(scene: Scene, chance: random.Random) -> Any:
    stamps = dict.fromkeys(scene.lifecycle.enqueue_move.stamp_input, NOW - chance.randint(0, 60 * DAY))
    return scene.new(
        tenant=chance.choice("abc"),
        key=chance.choice((None, "k1", "k2", "k3")),
        run_at=chance.choice((None, scene.now - 10**9, scene.now + 10**8)),
        max_attempts=chance.randint(1, 4),
        stamps=stamps,
    )


def change(job: Job, scene: Scene, chance: random.Random, role: str) -> Change:
    """Mostly the right token, sometimes an old one; an operator shows none."""
    token = chance.choice((job.claim_seq,) * 4 + (1,)) if role == "worker" else None
    return Change(
        job.id,
        token,
        error_code=chance.choice(CODES),
        error_category=chance.choice(list(Category)).value,
        error_message="it broke",
        result="[1]",
        run_at=chance.choice((None, scene.now + 10**7)),
        payload='{"v":2}',
        stamps=dict.fromkeys(scene.lifecycle.enqueue_move.stamp_input, NOW),
    )
