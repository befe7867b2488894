"""Steps for tests: files in the machine's folders, and an operator's reactions."""

from pathlib import Path

from kesin.lifecycle.model import Job
from tests.workloads.optiplan.workbench import ME, MINUTE, Workbench


def sent(bench: Workbench, job: Job) -> Job:
    """Its files lie in the inbox."""
    bench.until(job, "XML_READY")
    bench.poll()
    assert bench.files("inbox", job)
    return job


def timed_out(bench: Workbench, job: Job, code: str = "E_OSI_ACK_TIMEOUT") -> Job:
    bench.clock.advance(5 * MINUTE)
    bench.sweep()
    assert bench.reload(job).error_code == code
    return job


def retry(bench: Workbench, job: Job) -> Job:
    bench.orders.retry(ME, job.id)
    bench.clock.advance(9 * MINUTE)
    return job


def put(bench: Workbench, name: str, folder: str) -> None:
    machine = bench.paths.machine_drop_folder
    (machine / "inbox" / name).rename(machine / folder / name)


def take(bench: Workbench, name: str) -> Path:
    """Let the machine process a file: it is in no folder."""
    hand = bench.settings.data_dir / name
    (bench.paths.machine_drop_folder / "inbox" / name).rename(hand)
    return hand


def claimed(bench: Workbench, job: Job) -> Job:
    bench.clock.advance(31)
    [held] = bench.queue.claim("somebody", ids=[job.id])
    return held
