"""The measured figures of README.md, taken from the pages that the benchmarks write."""

from __future__ import annotations

import re
from typing import Final

from .text import DOCS, ROOT, table

README: Final = ROOT / "README.md"
_PLACE: Final = re.compile(r"(<!-- figures: .+? -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_ENGINE: Final = "`make bench ARGS='engine --write'`"
_REDIS: Final = "`make bench ARGS='redis --write'`"
_CHAOS: Final = "`make chaos ARGS=--write`"


def readme() -> str:
    """README.md with the figures as they stand."""
    rows = table(("measured", "Kesin", "peers", "command"), [*_speeds(), *_faults()])
    text = README.read_text("utf-8")
    return _PLACE.sub(lambda found: f"{found[1]}\n{chr(10).join(rows)}\n{found[2]}", text)


def _speeds() -> list[tuple[str, str, str, str]]:
    """Jobs a second; a page names its parts by headings."""
    sqlite, postgres = _part("benchmarks.md", "SQLite"), _part("benchmarks.md", "PostgreSQL")
    redis = _part("redis-benchmarks.md", "Flushed")
    found = []
    for title, rows, processes, by in (
        ("SQLite, no-op jobs per second", sqlite, "1 process", _ENGINE),
        ("PostgreSQL, one process", postgres, "1 process", _ENGINE),
        ("PostgreSQL, two processes", postgres, "2 processes", _ENGINE),
    ):
        peers = [
            f"{name.rpartition(', ')[0]}: {speed}"
            for name, speed in rows.items()
            if name.endswith(processes) and re.match(r"[A-Z]\w+ \d", name)
        ]
        found.append((title, rows[f"engine, {processes}"], "; ".join(peers), by))
    peers = [f"{name}: {speed}" for name, speed in redis.items() if not name.startswith("Kesin")]
    title = "Redis, flushed to disk before every response"
    found.append((title, redis["Kesin, engine"], "; ".join(peers), _REDIS))
    return found


def _faults() -> list[tuple[str, str, str, str]]:
    """What is lost, doubled and run again when something breaks."""
    lines = (DOCS / "chaos.md").read_text("utf-8").splitlines()
    head, *rows = [_cells(line) for line in lines if line.startswith("| ")]
    faults = [dict(zip(head, row, strict=False)) for row in rows if len(row) == len(head)]
    found = []
    for title, fault, count in (
        ("1,500 jobs, workers killed three times: lost", "kill -9", "lost"),
        ("the same fault: jobs run again", "kill -9", "ran again"),
        ("12 jobs, a worker resumed after its lease ended: completed twice", "SIGSTOP", "doubled"),
    ):
        shown = {one["queue"]: one[count] for one in faults if one["fault"].startswith(fault)}
        ours = [shown[f"Kesin, {store}"] for store in ("SQLite", "PostgreSQL", "Redis")]
        others = {queue.partition(",")[0]: one for queue, one in shown.items()}
        peers = "; ".join(f"{name}: {one}" for name, one in others.items() if name != "Kesin")
        said = ours[0] if len(set(ours)) == 1 else f"{', '.join(ours)} (by store, as above)"
        found.append((title, said, peers, _CHAOS))
    return found


def _part(name: str, heading: str) -> dict[str, str]:
    """The first two columns of the table below a heading."""
    text = (DOCS / name).read_text("utf-8")
    part = text.partition(f"\n## {heading}")[2].partition("\n#")[0]
    rows = [_cells(line) for line in part.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[1:]}


def _cells(line: str) -> list[str]:
    return [one.strip() for one in line.strip("| ").split(" | ")]
