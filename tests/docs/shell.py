"""The commands of a page, typed at one shell in their order and compared with the output shown."""

import subprocess
from itertools import zip_longest
from pathlib import Path

from tests.cli.programs import PATIENCE_S
from tests.docs.pages import ROOT, blocks_of, matches

URL = "http://127.0.0.1:8000"  # the address of the service on every page
END = "\x1e"  # printed after each block
OUTPUT = ("json", "txt")


def run(text: str, folder: Path = ROOT, *, options: str = "-euo") -> str:
    """The output of these commands, which end with success."""
    process = _type(text, folder, options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def follow(name: str, folder: Path, address: str) -> None:
    """Type the blocks of a page or a section in a new folder.

    Each succeeds and prints what the page shows.
    """
    folder.mkdir()
    page_blocks = blocks_of(name)
    steps = [
        (block, after.text if after and after.language in OUTPUT else "")
        for block, after in zip_longest(page_blocks, page_blocks[1:])
        if block.language == "sh"
    ]
    assert steps, name
    typed = "".join(f"{block.text}\nprintf '\\036'\n" for block, _ in steps)
    process = _type(typed.replace(URL, address), folder, "-euo")
    for (block, shown), output in zip(steps, process.stdout.split(END), strict=False):
        place = f"{name}:{block.line}"
        assert not shown or matches(shown, output), f"{place} prints\n{output}\n{process.stderr}"
    assert process.returncode == 0, f"{name}: {process.stderr}"


def _type(text: str, folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", options, "pipefail", "-c", text],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
