"""Operations that every storage supports."""

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
