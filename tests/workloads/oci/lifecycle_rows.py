"""Rows of the oci lifecycle in the places they are met at."""

from kesin.workloads.oci.lifecycle import oci_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import FUTURE, PAST, error

OCI = oci_lifecycle()
SPENT = {"attempt_count": 5}
TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
ERROR_INPUT = {"error_code": "CODE", "error_message": "why"}
WAS_CLAIMED = {"seq": 5, "claim_seq": 4, "payload_seq": 1}
FAILED = {"failed_at": PAST, "finished_at": PAST, "timer_at": FUTURE}
QUEUED_ANEW = {"run_at": NOW, "timer_at": None, "failed_at": None, "finished_at": None}
