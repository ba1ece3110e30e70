"""The grid: where a process dies, what kind of effect it was making, and what must be true in the end.

A point has one name for every class. For a local step, whose rows commit with its checkpoint, taking the record's lock
stands for the intent, and its second transaction, which stores the outcome, for the completion.
"""

from dataclasses import dataclass
from enum import StrEnum

STORES = ("sqlite", "postgres")


class Kind(StrEnum):
    """What an operation does, as far as recovery is concerned."""

    TRANSACTIONAL = "transactional"
    STICKY = "sticky"
    SUCCESS_ONLY = "success_only"
    FENCED = "fenced"
    QUERYABLE = "queryable"
    UNRECOVERABLE = "unrecoverable"
    OPAQUE = "opaque"
    """An operation with `effects=Opaque`: nothing inside it is known, not even that it calls somebody."""

    @property
    def is_called_again(self) -> bool:
        return self in (Kind.STICKY, Kind.SUCCESS_ONLY, Kind.FENCED)


_PHASES = {
    "before": "before {}",
    "before-commit": "before commit of {}",
    "after-commit": "after commit of {}",
    "after": "after {}",
}

_WRITTEN_OUTSIDE = {
    **{f"claim/{phase}": label.format("claim") for phase, label in _PHASES.items()},
    "handler/begin": "before handler",
    **{f"intend/{phase}": label.format("intend") for phase, label in _PHASES.items()},
    "call/before": "before send",
    "call/sent": "after send",
    "call/charged": "after reply",
    "call/after": "after call",
    **{f"checkpoint/{phase}": label.format("checkpoint") for phase, label in _PHASES.items()},
    "handler/end": "after handler",
    **{f"complete/{phase}": label.format("complete") for phase, label in _PHASES.items()},
    "told": "after tell completed",
    "answered": "after answer",
}
"""By the name of a point: the place in the child where it dies."""

_WRITTEN_INSIDE = {
    **{f"claim/{phase}": label.format("claim") for phase, label in _PHASES.items()},
    "handler/begin": "before handler",
    "intend/before": "before begin",
    "intend/before-commit": "before hold",
    "intend/after-commit": "after hold",
    "intend/after": "before call",
    "call/before": "before send",
    "call/sent": "after send",
    "call/charged": "after reply",
    "call/after": "after call",
    "checkpoint/before": "before settle",
    "checkpoint/before-commit": "before commit",
    "checkpoint/after-commit": "after commit",
    "checkpoint/after": "after tell effect known",
    "handler/end": "inside settle",
    "complete/before": "before begin#2",
    "complete/before-commit": "before commit#2",
    "complete/after-commit": "after commit#2",
    "complete/after": "after tell completed",
    "told": "after handler",
    "answered": "after answer",
}

POINTS = tuple(_WRITTEN_OUTSIDE)
_NOT_IN_OPAQUE = ("intend/", "checkpoint/", "call/after")


def points_of(kind: Kind) -> tuple[str, ...]:
    """Return the points that an operation of this kind goes past."""
    if kind is Kind.OPAQUE:
        return tuple(point for point in POINTS if not point.startswith(_NOT_IN_OPAQUE))
    return POINTS


def label_of(kind: Kind, point: str) -> str:
    """Return where exactly a child of this kind dies."""
    return (_WRITTEN_INSIDE if kind is Kind.TRANSACTIONAL else _WRITTEN_OUTSIDE)[point]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the bank and the store must show once everything is quiet."""

    state: str
    charges: int
    calls: int


def expected_after_kill(kind: Kind, point: str) -> Expected:
    """Return what must be true after a death at this point and retries by the client alone."""
    has_called = _is_past(point, "call/sent")
    if kind is Kind.TRANSACTIONAL:
        return Expected("completed", charges=1, calls=0)
    doubt_begins, doubt_ends = (
        ("claim/after-commit", "complete/after-commit")
        if kind is Kind.OPAQUE
        else ("intend/after-commit", "checkpoint/after-commit")
    )
    is_between = _is_past(point, doubt_begins) and not _is_past(point, doubt_ends)
    if not is_between:
        return Expected("completed", charges=1, calls=1)
    if kind.is_called_again:
        return Expected("completed", charges=1, calls=2 if has_called else 1)
    return Expected("in_doubt", charges=int(has_called), calls=int(has_called))


def _is_past(point: str, milestone: str) -> bool:
    return POINTS.index(point) >= POINTS.index(milestone)
