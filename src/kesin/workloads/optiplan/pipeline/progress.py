"""What is remembered of a job between two looks: its files, its program, its deliveries.

One fact beside the job. Whoever takes the job over, after a crash or on another machine, reads here
what was begun: everything is written down before it is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, Fact
from kesin.workloads.optiplan.customers import WORKLOAD

FACT: Final = "dossier"


@dataclass(slots=True)
class Dossier:
    """Plain JSON throughout."""

    files: list[str] = field(default_factory=list)  # names in the import folder, one a batch
    runs: int = 0  # programs started for this job, ever
    program: dict[str, Any] | None = None  # the one of this stay in OPTI_RUNNING: run, host
    seen: dict[str, list[int]] = field(default_factory=dict)  # XMLs as they were at the last look
    xml: list[str] = field(default_factory=list)  # names in the export folder
    invalid: dict[str, Any] | None = None  # what is wrong with them, once that is known
    summary: dict[str, Any] = field(default_factory=dict)  # what the checked XMLs say of themselves
    deliveries: list[dict[str, Any]] = field(default_factory=list)  # every try: delivery, state
    current: int | None = None  # the try of this stay in XML_READY

    @property
    def stems(self) -> list[str]:
        """The names of the batches."""
        return [name.rsplit(".", 1)[0] for name in self.files]

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """As it was kept; what another version kept is passed over."""
        known = {name: kept[name] for name in cls.__dataclass_fields__ if name in kept}
        return cls(**known)


class Dossiers:
    """Where they are kept."""

    def __init__(self, directory: Directory, now: Callable[[], int]) -> None:
        self._directory = directory
        self._now = now

    def read(self, job_id: str) -> Dossier:
        """The job's, or an empty one."""
        fact = self._directory.fact(WORKLOAD, job_id, FACT)
        return Dossier() if fact is None else Dossier.of_json(json.loads(fact.value) or {})

    def write(self, job_id: str, dossier: Dossier) -> None:
        """Keep it in the place of what was kept before."""
        told = canonical_json(asdict(dossier))
        self._directory.put_fact(Fact(WORKLOAD, job_id, FACT, told, self._now()))

    def of_jobs(self) -> list[str]:
        """The jobs that have one."""
        return [one.site for one in self._directory.facts(WORKLOAD, name=FACT)]

    def drop(self, job_id: str) -> bool:
        """Forget a job that is no more."""
        return self._directory.drop_fact(WORKLOAD, job_id, FACT)
