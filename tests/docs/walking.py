"""Pages that are followed by hand: typed at one bash, block by block, held to what they show."""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cli.programs import PATIENCE_S
from tests.docs.pages import Block, blocks, matches

URL = "http://127.0.0.1:8000"  # of the service, on every page
END = "\x1e"  # between what two blocks print
SHOWN = ("json", "txt")


@dataclass(frozen=True)
class Step:
    """A block that is typed, and the answer the page shows."""

    page: Path
    typed: Block
    answer: Block | None


def steps(page: Path) -> list[Step]:
    found = blocks(page)
    return [
        Step(page, one, after if after is not None and after.language in SHOWN else None)
        for one, after in zip(found, [*found[1:], None], strict=True)
        if one.language == "sh"
    ]


def walk(way: Iterable[Step], folder: Path, address: str = URL) -> None:
    """Type it in this folder, with the environment of the test."""
    way = list(way)
    assert way
    assert shutil.which("curl"), "these pages need curl"
    told = "".join(f"{step.typed.text}\nprintf '\\036'\n" for step in way)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", told.replace(URL, address)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    for step, said in zip(way, done.stdout.split(END), strict=False):
        if step.answer is not None:
            where = f"{step.page.name}:{step.typed.line}"
            assert matches(step.answer.text, said), f"{where} says\n{said}\n{done.stderr}"
    assert done.returncode == 0, done.stderr
