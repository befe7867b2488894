"""An order's progress beside the job; each step is recorded first, for the next runner."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import Directory, MetadataEntry
from kesin.workloads.optiplan.customers import WORKLOAD

ALL_BATCHES: Final = ""  # the stem of an XML that is for all batches
_NAME: Final = "dossier"  # stored


def batch_stem(stems: Iterable[str], name: str) -> str:
    """Return the stem of the batch that an XML belongs to, by its name."""
    matches = [stem for stem in stems if name.lower().startswith(stem.lower())]
    return max(matches, key=len, default=ALL_BATCHES)


@dataclass(slots=True)
class OrderProgress:
    """The recorded progress of a job; plain JSON, and the field names are stored."""

    files: list[str] = field(default_factory=list)  # names in the import folder, one per batch
    runs: int = 0  # plans so far: programs started, and runs by hand
    replans: int = 0  # because offcuts of the plan were gone, since the job entered OPTI_RUNNING
    program: dict[str, Any] | None = None  # since the job entered OPTI_RUNNING: run, host
    seen: dict[str, list[int]] = field(default_factory=dict)  # XML states at the last poll
    xml: list[str] = field(default_factory=list)  # names in the export folder
    invalid: dict[str, Any] | None = None  # the problem of invalid XMLs
    summary: dict[str, Any] = field(default_factory=dict)  # the results of the XML check
    deliveries: list[dict[str, Any]] = field(default_factory=list)  # delivery, state, run of each
    current: int | None = None  # the attempt since the job entered XML_READY

    @property
    def stems(self) -> list[str]:
        return [name.rsplit(".", 1)[0] for name in self.files]


class ProgressStore:
    """The progress records in the store."""

    def __init__(self, queue: Queue) -> None:
        self._directory = Directory(queue.store)
        self._now = queue.now

    def read(self, job_id: str) -> OrderProgress:
        """Read the progress of a job; unknown fields of other versions are ignored."""
        entry = self._directory.metadata_entry(WORKLOAD, job_id, _NAME)
        record = json.loads(entry.value) or {} if entry else {}
        known = OrderProgress.__dataclass_fields__
        return OrderProgress(**{name: record[name] for name in known if name in record})

    def write(self, job_id: str, progress: OrderProgress) -> None:
        value = canonical_json(asdict(progress))
        self._directory.put_metadata(MetadataEntry(WORKLOAD, job_id, _NAME, value, self._now()))

    def job_ids(self) -> list[str]:
        return [entry.site for entry in self._directory.metadata_entries(WORKLOAD, name=_NAME)]

    def delete(self, job_id: str) -> bool:
        return self._directory.delete_metadata(WORKLOAD, job_id, _NAME)
