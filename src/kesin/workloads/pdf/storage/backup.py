"""Where finished PDFs are, and what a backup holds of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kesin.engine.transfer.backup import Kept
from kesin.foundation.settings import Settings


def artifacts_place(settings: Settings) -> str:
    """The address of the storage: the one that is set, else a folder beside the database."""
    return settings.pdf_artifacts or str(settings.data_dir / "artifacts")


def kept(settings: Settings) -> Iterator[Kept | str]:
    """The folder of the PDFs; a sentence for what is elsewhere."""
    place = artifacts_place(settings)
    if place.startswith("s3://"):
        yield f"PDFs in {place}: let the bucket keep versions or a replica"
    else:
        yield Kept("artifacts", Path(unquote(urlsplit(place).path) if "://" in place else place))
    if settings.pdf_templates is not None:
        yield f"templates in {settings.pdf_templates}: keep them where your programs are kept"
