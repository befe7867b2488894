"""The advice on the error codes of PDF jobs, batches and webhooks; see `advice.toml`."""

from typing import Final

from kesin.workloads.common.advice import AdviceTexts

ADVICE: Final = AdviceTexts("kesin.workloads.pdf")
