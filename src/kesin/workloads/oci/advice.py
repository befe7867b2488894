"""The advice on the error codes of conversions; the texts are in `advice.toml`."""

from typing import Final

from kesin.workloads.common.advice import AdviceTexts

ADVICE: Final = AdviceTexts("kesin.workloads.oci")
