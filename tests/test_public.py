"""The public face: which names there are, and how they look to a type checker."""

import subprocess
import sys
from pathlib import Path

import pytest

import nebis

ROOT = Path(__file__).parents[1]

FACADES = {"Nebis", "Attempt", "Operation", "AsyncNebis", "AsyncAttempt", "AsyncOperation", "Execution"}
CHOICES = {
    *{"Local", "Declared", "Opaque", "Policy", "Reject", "Wait", "ExpiredPolicy", "Disposition"},
    *{"PerOperation", "PerResourceType", "PerAccount", "FingerprintRule", "FingerprintVersions"},
    *{"seconds", "minutes", "hours", "days", "Deadline", "Limit", "Quota"},
}
EFFECTS = {"Sticky", "SuccessOnly", "Fenced", "Queryable", "Unrecoverable", "Undo", "Query", "verify_token"}
MESSAGES = {"Consumer", "AsyncConsumer", "Delivery", "Incoming", "Done", "Later", "Parked", "ParkReason"}
KEYS = {"uuid4_key", "uuid7_key", "derived_key", "weaknesses"}


def errors() -> set[str]:
    return {
        name
        for name, member in vars(nebis).items()
        if isinstance(member, type) and issubclass(member, nebis.NebisError)
    }


def test_public_names_are_these() -> None:
    """A name that is added here is promised for a long time; errors are compared with their tree elsewhere."""
    assert set(nebis.__all__) == FACADES | CHOICES | EFFECTS | MESSAGES | KEYS | errors()


def test_public_names_are_sorted_and_exist() -> None:
    assert nebis.__all__ == sorted(nebis.__all__)
    assert all(hasattr(nebis, name) for name in nebis.__all__)


@pytest.mark.timeout(300)
def test_types_reach_the_caller() -> None:
    """`tests/typing/api.py` says what a type checker must see, and marks what it must refuse."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "tests/typing/api.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout
