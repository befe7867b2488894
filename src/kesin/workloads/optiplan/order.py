"""An order as it lies in the queue: the payload it came with, its mode and its revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.payload import Mode, Payload, payload_hash, payload_json, read_payload


@dataclass(frozen=True, slots=True)
class Order:
    """What a job carries. The mode was settled when the order came in."""

    payload: Payload
    mode: Mode
    revision: int = 1

    @property
    def key(self) -> str:
        """One job for the same payload, until a new revision is asked for."""
        return f"{payload_hash(self.payload)}:r{self.revision}"

    def as_json(self) -> dict[str, Any]:
        return {
            "order": payload_json(self.payload),
            "mode": self.mode,
            "revision": self.revision,
        }

    @classmethod
    def of(cls, job: Job) -> Self:
        """As the job keeps it; raises OrderProblem for what no order is."""
        kept = job.data if isinstance(job.data, dict) else {}
        return cls(read_payload(kept.get("order")), kept.get("mode", "C"), kept.get("revision", 1))
