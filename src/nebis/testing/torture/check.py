"""What a check is, and how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from nebis.testing.torture.bench import Bench

Body = Callable[["Bench"], Awaitable[None]]


class Group(Enum):
    """What a check asks about."""

    SEMANTICS = "semantics"
    CONCURRENCY = "concurrency"
    NETWORK = "network"
    INPUT = "input"
    SECURITY = "security"


class Severity(Enum):
    """What it costs if a check fails."""

    CRITICAL = "critical"
    """Something happens twice, or somebody sees what is not theirs."""
    MAJOR = "major"
    """A client is told something wrong, or cannot get its answer."""
    MINOR = "minor"
    """A client is left to guess."""


class Verdict(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It does not apply here; the detail says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold, and the code that tries to break it."""

    name: str
    group: Group
    title: str
    proves: str
    faults: tuple[str, ...]
    severity: Severity
    body: Body

    @property
    def id(self) -> str:
        """Return the name under which `--only` finds it; it never changes."""
        return f"{self.group.value}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A check that was run."""

    check: Check
    verdict: Verdict
    detail: str = ""
    reproduce: str = ""
    """A line for a shell that shows the failure to a person."""
    seconds: float = 0.0


class Failed(Exception):
    """What had to hold does not; the message says what was seen instead."""


class NotApplicable(Exception):
    """The check says nothing about this API; the message says why."""


def require(condition: object, seen: str) -> None:
    """Fail the check unless the condition holds."""
    if not condition:
        raise Failed(seen)


def skip(reason: str) -> NoReturn:
    """End a check that says nothing here."""
    raise NotApplicable(reason)


class Collection:
    """The checks of one group, in the order in which they are written."""

    def __init__(self, group: Group) -> None:
        self.checks: list[Check] = []
        self._group = group

    def __call__(
        self, name: str, title: str, *, proves: str, faults: str, severity: Severity
    ) -> Callable[[Body], Body]:
        """Add the function below as a check; `faults` are the ids of what it looks for."""

        def add(body: Body) -> Body:
            self.checks.append(
                Check(
                    name=name,
                    group=self._group,
                    title=title,
                    proves=proves,
                    faults=tuple(faults.split()),
                    severity=severity,
                    body=body,
                )
            )
            return body

        return add
