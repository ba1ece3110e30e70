"""The whole suite in one module, which pytest collects by name."""

from nebis.testing.conformance.ageing import TestAgeing
from nebis.testing.conformance.attach import TestAttach
from nebis.testing.conformance.batches import TestBatches
from nebis.testing.conformance.checkpoint import TestCheckpoint
from nebis.testing.conformance.claim import TestClaim
from nebis.testing.conformance.complete import TestComplete
from nebis.testing.conformance.concurrency import TestConcurrency
from nebis.testing.conformance.differential import TestDifferential
from nebis.testing.conformance.doubt import TestDoubt
from nebis.testing.conformance.inbox import TestOffsets, TestParked
from nebis.testing.conformance.intend import TestIntend
from nebis.testing.conformance.migrations import TestMigrations
from nebis.testing.conformance.people import TestAttempts, TestAudit, TestLateResults, TestWorkers
from nebis.testing.conformance.reading import TestReading
from nebis.testing.conformance.release import TestRelease
from nebis.testing.conformance.renew import TestRenew
from nebis.testing.conformance.resolve import TestResolve
from nebis.testing.conformance.secrets import TestSecrets
from nebis.testing.conformance.suspend import TestSuspend
from nebis.testing.conformance.take_over import TestTakeOver
from nebis.testing.conformance.transactions import TestHeldRecords, TestHeldStore, TestTransactions
from nebis.testing.conformance.turn_back import TestTurnBack
from nebis.testing.conformance.velocity import TestVelocity
from nebis.testing.conformance.withdraw import TestWithdraw

__all__ = [
    "TestAgeing",
    "TestAttach",
    "TestAttempts",
    "TestAudit",
    "TestBatches",
    "TestCheckpoint",
    "TestClaim",
    "TestComplete",
    "TestConcurrency",
    "TestDifferential",
    "TestDoubt",
    "TestHeldRecords",
    "TestHeldStore",
    "TestIntend",
    "TestLateResults",
    "TestMigrations",
    "TestOffsets",
    "TestParked",
    "TestReading",
    "TestRelease",
    "TestRenew",
    "TestResolve",
    "TestSecrets",
    "TestSuspend",
    "TestTakeOver",
    "TestTransactions",
    "TestTurnBack",
    "TestVelocity",
    "TestWithdraw",
    "TestWorkers",
]
