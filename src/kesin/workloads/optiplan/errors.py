"""Every error code of an order, with its HTTP status; `lifecycle.py` says what follows from it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from kesin.foundation.problems import Problem
from kesin.workloads.common.advice import AdviceTexts
from kesin.workloads.optiplan.lifecycle import NEVER_RETRIED


class OptiCode(StrEnum):
    """The error codes of the seed, and those that the workload adds."""

    CRM_NO_MATCH = "E_CRM_NO_MATCH"
    TEMPLATE_INVALID = "E_TEMPLATE_INVALID"
    PLATE_SIZE_MISSING = "E_PLATE_SIZE_MISSING"
    BACKING_THICKNESS_UNKNOWN = "E_BACKING_THICKNESS_UNKNOWN"
    TRIM_RULE_MISSING = "E_TRIM_RULE_MISSING"
    OPERATOR_TRIGGER_REQUIRED = "E_OPERATOR_TRIGGER_REQUIRED"

    INVALID_GRAIN = "E_INVALID_GRAIN"
    EDGE_MAPPING_UNKNOWN = "E_EDGE_MAPPING_UNKNOWN"
    EXPORT_DIR_UNWRITABLE = "E_EXPORT_DIR_UNWRITABLE"
    DROP_DIR_UNWRITABLE = "E_DROP_DIR_UNWRITABLE"
    OPTI_MODE_A_RUNNER_MISSING = "E_OPTI_MODE_A_RUNNER_MISSING"
    OPTI_MODE_B_MACRO_MISSING = "E_OPTI_MODE_B_MACRO_MISSING"
    OPTI_RUNNER_FAILED = "E_OPTI_RUNNER_FAILED"
    OPTI_XML_TIMEOUT = "E_OPTI_XML_TIMEOUT"
    XML_INVALID = "E_XML_INVALID"
    MACHINE_FILE_MISSING = "E_MACHINE_FILE_MISSING"
    OSI_ACK_TIMEOUT = "E_OSI_ACK_TIMEOUT"
    OSI_ACK_FAILED = "E_OSI_ACK_FAILED"
    MAX_ATTEMPTS = "E_MAX_ATTEMPTS"
    CANCELLED = "E_CANCELLED"
    REISSUED = "E_REISSUED"
    UNKNOWN = "E_UNKNOWN"

    VALIDATION = "E_VALIDATION"
    PHONE_REQUIRED = "E_PHONE_REQUIRED"
    JOB_NOT_FOUND = "E_JOB_NOT_FOUND"
    FILE_NOT_FOUND = "E_FILE_NOT_FOUND"
    JOB_NOT_IN_HOLD = "E_JOB_NOT_IN_HOLD"
    JOB_NOT_FAILED = "E_JOB_NOT_FAILED"
    JOB_NOT_CANCELLABLE = "E_JOB_NOT_CANCELLABLE"
    OFFCUT_NOT_FOUND = "E_OFFCUT_NOT_FOUND"
    OFFCUT_STATE = "E_OFFCUT_STATE"
    RETRY_LIMIT_REACHED = "E_RETRY_LIMIT_REACHED"
    CONFIG_UNAVAILABLE = "E_CONFIG_UNAVAILABLE"
    UNAUTHORIZED = "E_UNAUTHORIZED"
    FORBIDDEN = "E_FORBIDDEN"
    INVALID_CREDENTIALS = "E_INVALID_CREDENTIALS"
    TOKEN_REQUIRED = "E_TOKEN_REQUIRED"  # noqa: S105 - the name of an error


_BY_STATUS: Final = {
    401: (OptiCode.UNAUTHORIZED, OptiCode.INVALID_CREDENTIALS, OptiCode.TOKEN_REQUIRED),
    403: (OptiCode.FORBIDDEN,),
    404: (OptiCode.JOB_NOT_FOUND, OptiCode.FILE_NOT_FOUND, OptiCode.OFFCUT_NOT_FOUND),
    409: (
        *(OptiCode.JOB_NOT_IN_HOLD, OptiCode.OFFCUT_STATE, OptiCode.OPERATOR_TRIGGER_REQUIRED),
        *(OptiCode.JOB_NOT_FAILED, OptiCode.JOB_NOT_CANCELLABLE, OptiCode.RETRY_LIMIT_REACHED),
        *map(OptiCode, NEVER_RETRIED),  # of a rejected retry
    ),
    422: (OptiCode.VALIDATION,),
    503: (OptiCode.CONFIG_UNAVAILABLE,),
}
_STATUSES: Final = {code: status for status, codes in _BY_STATUS.items() for code in codes}

# The texts are in `advice.toml`.
ADVICE: Final = AdviceTexts("kesin.workloads.optiplan", general=OptiCode.UNKNOWN)
Details = Mapping[str, Any] | None


class OrderProblem(Problem):
    """A `Problem` that stops an order: an error code, a message and details."""

    code: OptiCode

    def __init__(self, code: OptiCode, message: str, details: Details = None, **values: object) -> None:
        super().__init__(message, code=code, details=details, **values)
        self.code = code
        self.status = _STATUSES.get(code, 400)
