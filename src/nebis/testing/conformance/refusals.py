"""Which verb is refused for which reasons: the whole list, which the tour compares with the state machine."""

from __future__ import annotations

from nebis.core.answers import Refusal
from nebis.core.step import Edge
from nebis.core.verbs import (
    Attach,
    Checkpoint,
    Complete,
    Doubt,
    Expire,
    Forget,
    Intend,
    Purge,
    Release,
    Renew,
    Resolve,
    Suspend,
    TakeOver,
    TurnBack,
    Verb,
    Withdraw,
)
from nebis.testing.conformance.twin import Hit

_NOT_THE_OWNER = frozenset({Refusal.ABSENT, Refusal.OTHER_LIFE, Refusal.FENCED})
_NOT_RUNNING = frozenset({Refusal.AVAILABLE, Refusal.IN_DOUBT, Refusal.COMPLETED, Refusal.EXPIRED})
_NEITHER_RUNNING_NOR_IN_DOUBT = _NOT_RUNNING - {Refusal.IN_DOUBT}
_OUT_OF_PLACE = frozenset({Refusal.NOT_DECLARED, Refusal.UNDOING, Refusal.NOT_UNDOING})

REFUSALS: dict[type[Verb], frozenset[Refusal]] = {
    TakeOver: _NOT_RUNNING | {Refusal.ABSENT, Refusal.OTHER_LIFE, Refusal.MOVED_ON, Refusal.LEASE_LIVE},
    Renew: _NOT_THE_OWNER | _NOT_RUNNING,
    Intend: _NOT_THE_OWNER
    | _NOT_RUNNING
    | _OUT_OF_PLACE
    | {
        Refusal.EFFECT_OPEN,
        Refusal.NAME_USED,
        Refusal.CODE_CHANGED,
        Refusal.NOT_RESUMABLE,
        Refusal.RECALL_OVER,
    },
    Checkpoint: _NOT_THE_OWNER
    | _NEITHER_RUNNING_NOR_IN_DOUBT
    | _OUT_OF_PLACE
    | {Refusal.EFFECT_OPEN, Refusal.EFFECT_NOT_OPEN, Refusal.NAME_USED, Refusal.NOT_DEFINITE},
    Complete: _NOT_THE_OWNER | {Refusal.AVAILABLE, Refusal.EXPIRED, Refusal.EFFECT_OPEN, Refusal.UNDOING},
    Suspend: _NOT_THE_OWNER | _NOT_RUNNING | {Refusal.CLEAN, Refusal.NOT_RESUMABLE},
    Release: _NOT_THE_OWNER | {Refusal.IN_DOUBT, Refusal.COMPLETED, Refusal.EXPIRED, Refusal.DIRTY, Refusal.UNDOING},
    Withdraw: _NOT_RUNNING | {Refusal.OTHER_LIFE, Refusal.FENCED, Refusal.DIRTY, Refusal.UNDOING},
    Doubt: _NOT_THE_OWNER | _NEITHER_RUNNING_NOR_IN_DOUBT,
    TurnBack: _NOT_THE_OWNER | _NOT_RUNNING | {Refusal.NOT_DECLARED, Refusal.EFFECT_OPEN},
    Attach: _NOT_THE_OWNER | _NOT_RUNNING,
    Resolve: frozenset(
        {
            Refusal.ABSENT,
            Refusal.OTHER_LIFE,
            Refusal.IN_PROGRESS,
            Refusal.AVAILABLE,
            Refusal.COMPLETED,
            Refusal.EXPIRED,
            Refusal.MOVED_ON,
            Refusal.EFFECT_NOT_OPEN,
            Refusal.NOT_DEFINITE,
            Refusal.NO_PROOF,
            Refusal.NOT_RESUMABLE,
        }
    ),
    Expire: _NOT_RUNNING - {Refusal.COMPLETED} | {Refusal.ABSENT, Refusal.IN_PROGRESS, Refusal.NOT_DUE},
    Purge: _NOT_RUNNING - {Refusal.AVAILABLE} | {Refusal.ABSENT, Refusal.IN_PROGRESS, Refusal.NOT_DUE},
    Forget: _NOT_RUNNING - {Refusal.EXPIRED} | {Refusal.ABSENT, Refusal.IN_PROGRESS, Refusal.NOT_DUE},
}
"""A claim is never refused: each of its answers is an edge of its own."""

EDGES: frozenset[Edge] = frozenset(Edge) - {Edge.REFUSED}


def refusal_hits() -> list[Hit]:
    """Return every refusal of every verb."""
    return [Hit(verb.__name__, reason.value) for verb, reasons in REFUSALS.items() for reason in sorted(reasons)]


def is_listed(hit: Hit) -> bool:
    """Tell whether an edge or a refusal is one of those that the contract knows."""
    return hit.result in EDGES or hit in _REFUSAL_HITS


_REFUSAL_HITS = frozenset(refusal_hits())
