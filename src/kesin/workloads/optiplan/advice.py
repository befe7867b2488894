"""The advice on the error codes of orders; the texts are in `advice.toml`."""

from typing import Final

from kesin.workloads.common.advice import AdviceTexts
from kesin.workloads.optiplan.errors import OptiCode

ADVICE: Final = AdviceTexts("kesin.workloads.optiplan", general=OptiCode.UNKNOWN)
