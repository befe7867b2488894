"""The advice on the error codes of conversions; the texts are in `advice.toml`."""

from __future__ import annotations

from typing import Final

from kesin.workloads.common.advice import AdviceTexts

ADVICE: Final = AdviceTexts("kesin.workloads.oci")
