"""A torture kit for any HTTP API that takes idempotency keys, whatever it is written in.

An operation file says how to call one operation of the API and how to count what it did; `run` then retries, races,
cuts and confuses it, and says what did not hold. The command is `nebis torture`.
"""

from nebis.testing.torture.catalogue import CHECKS, chosen
from nebis.testing.torture.check import Check, Group, Result, Severity, Verdict
from nebis.testing.torture.operation import Operation, read_operation
from nebis.testing.torture.runner import Run, run

__all__ = [
    "CHECKS",
    "Check",
    "Group",
    "Operation",
    "Result",
    "Run",
    "Severity",
    "Verdict",
    "chosen",
    "read_operation",
    "run",
]
