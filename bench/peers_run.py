"""Running the peers: each in a process of its own, one JSON line back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run(peer: str, *, jobs: int, processes: int, where: list[str]) -> dict[str, Any]:
    """One peer's result line; raises with its own words when it fails."""
    command = [sys.executable, "-m", f"bench.peers.{peer}", "--jobs", str(jobs)]
    command += ["--processes", str(processes), "--json", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{peer} failed:\n{done.stderr[-2_000:]}")
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if line["completed"] != jobs:
        raise RuntimeError(f"{peer} completed {line['completed']} of {jobs} jobs")
    return line
