"""The seed's render configuration. An empty list of templates or URLs allows none."""

from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from kesin.workloads.pdf.errors import MAX_RETRIES
from kesin.workloads.pdf.limits import GRACE_S

SHIPPED: Final = Path(__file__).parent / "templates"  # the templates that come with Kesin


class FailSafePolicy(StrEnum):
    """The response to a request while no worker is running."""

    STRICT = "strict"  # 503
    DEGRADE = "degrade"  # the HTML instead


class PdfRenderConfig(BaseModel):
    """The seed's render settings and their defaults."""

    model_config = ConfigDict(frozen=True)

    hard_timeout: int = Field(60, ge=1, le=600)  # seconds, as are those below
    # The engines and the lifecycle have these two: another value would have no effect.
    graceful_cancel_offset: int = Field(GRACE_S, ge=GRACE_S, le=GRACE_S)
    max_retries: int = Field(MAX_RETRIES, ge=MAX_RETRIES, le=MAX_RETRIES)
    artifact_ttl_seconds: int = Field(86_400, ge=60)
    cleanup_interval_seconds: int = Field(3_600, ge=1)
    fail_safe_policy: FailSafePolicy = FailSafePolicy.STRICT
    template_allowlist: set[str] = set()
    url_allowlist: list[str] = []
