"""The address of finished PDFs, and what a backup includes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kesin.engine.transfer.backup import BackupFile
from kesin.foundation.settings import Settings


def artifacts_address(settings: Settings) -> str:
    """Return the configured address of the storage, else a folder beside the database."""
    return settings.pdf_artifacts or str(settings.data_dir / "artifacts")


def backup_files(settings: Settings) -> Iterator[BackupFile | str]:
    """Yield the folder of the PDFs; a note for what a backup cannot include."""
    address = artifacts_address(settings)
    if address.startswith("s3://"):
        yield f"PDFs in {address}: let the bucket keep versions or a replica"
    else:
        yield BackupFile(
            "artifacts", Path(unquote(urlsplit(address).path) if "://" in address else address)
        )
    if settings.pdf_templates is not None:
        yield f"templates in {settings.pdf_templates}: keep them where your programs are kept"
