"""The last stop of the tour: the same store behind `kesin serve`, asked over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kesin.cli.failures import Failure

ANSWER_S = 10.0


def ask_the_service(folder: Path, key: str) -> tuple[int, dict[str, Any]]:
    """What a stranger gets, and what the key's owner sees of the orders."""
    with _serving(folder) as address:
        stranger, _ = _get(f"{address}/api/queues")
        status, stats = _get(f"{address}/api/queues/optiplan/stats", key)
    if status != 200:  # noqa: PLR2004
        raise Failure(f"the service answered {status}")
    return stranger, stats


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """`kesin serve` on a free port; its address."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KESIN_")}
    env = {**own, "KESIN_DATA_DIR": str(folder), "KESIN_LOG": "json"}
    command = [sys.executable, "-m", "kesin.cli", "serve", "--port", "0", "--no-workers"]
    with subprocess.Popen(  # noqa: S603  # ourselves
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _address(process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=ANSWER_S)


def _address(process: subprocess.Popen[str]) -> str:
    said = []
    for line in process.stderr or ():
        said.append(line)
        if '"listening"' in line:
            return str(json.loads(line)["address"])
    raise Failure("the service did not start: " + "".join(said[-3:]))


def _get(url: str, key: str | None = None) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, headers={"x-api-key": key} if key else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, {}
