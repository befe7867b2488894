"""Operations that every storage supports."""

import threading
from collections.abc import Callable

from kesin.workloads.pdf.storage.base import StorageBackend

PDF = "application/pdf"
KEY = "pdfs/0199-a/1700000000000000.pdf"
HOUR_US = 3_600_000_000


def operations_of(storage: StorageBackend) -> list[Callable[[], object]]:
    return [
        lambda: storage.exists(KEY),
        lambda: storage.get_bytes(KEY),
        lambda: storage.get_range(KEY, 0, 5),
        lambda: storage.head(KEY),
        lambda: storage.delete(KEY),
        lambda: list(storage.list("pdfs")),
        lambda: storage.put_bytes(KEY, b"x", PDF),
    ]


def run_threads(storage: StorageBackend, folder: str) -> list[BaseException]:
    """Return the errors of threads that put, get and delete their own keys in the same folder."""
    problems: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(15):
                key = f"{folder}/{name}-{number}.pdf"
                storage.put_bytes(key, str(name).encode(), PDF)
                assert storage.get_bytes(key) == str(name).encode()
                assert storage.delete(key)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems
