"""The advice on the error codes of PDF jobs, batches and webhooks; see `advice.toml`."""

from __future__ import annotations

from typing import Final

from kesin.workloads.common.advice import AdviceTexts

ADVICE: Final = AdviceTexts("kesin.workloads.pdf")
