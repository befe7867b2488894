"""Secrets in our environment, and the environments of child processes, which hold none."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CANARY = "canary-that-nobody-may-see"
SECRETS = {
    "KESIN_SECRET_KEYS": f"k1:{CANARY}",
    "KESIN_CRON_SECRET": CANARY,
    "KESIN_DATABASE_URL": f"postgresql://kesin:{CANARY}@localhost/kesin",
    "KESIN_PDF_WEBHOOK_SECRET": CANARY,
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "PGPASSWORD": CANARY,
    "SOME_TOKEN": CANARY,
}


def set_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def environment_of(pid: int) -> dict[str, str]:
    text = ""
    for _ in range(10_000):  # it is empty for a moment while a program starts
        text = text or Path(f"/proc/{pid}/environ").read_text("utf-8", errors="replace")
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)


def descendants(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text("ascii").split()):
                yield child
                yield from descendants(child)


def command_of(pid: int) -> bytes:
    """Its command line; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def assert_no_secrets(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        environment = environment_of(pid)
        assert CANARY not in str(environment), (pid, sorted(environment))
