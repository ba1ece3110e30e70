"""Many claims, or many completions, in one statement that is a transaction of its own: for all of them, or for nobody.

For a database in this very process. There a statement is no trip, but each one takes the interpreter along and waits
for it again, while others have it. During a single one the database works beside the interpreter, from the first row
to the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nebis.core.answers import Answer, Grant, Locked, make_granted
from nebis.core.claiming import first_life
from nebis.core.owning import KEPT
from nebis.core.record import Fence
from nebis.core.verbs import Claim, Complete, Verb
from nebis.flow import Flow
from nebis.stores.sql.asks import Write, Written
from nebis.stores.sql.dialect import Statements
from nebis.stores.sql.members import claiming_all, completing_all

FEWEST: Final = 8
"""Fewer are not worth a list of rows."""
MOST: Final = 256
"""The longest list that there is a text for; no batch of ours is longer."""
MOST_BYTES: Final = 1 << 20
"""Longer bodies, all together, are written one by one: what is written from a list is copied first."""

_CLAIMS: Final = {Claim}
_COMPLETIONS: Final = {Complete}
_NEW: Final = Grant.NEW
"""Looked up once: every new key is answered with it."""


def at_once(statements: Statements, verbs: Sequence[Verb], now: int | None) -> Flow[list[Answer | Locked]]:
    """Answer all of them; or return nothing where they have to be looked at one by one."""
    kinds = set(map(type, verbs)) if FEWEST <= len(verbs) <= MOST else set()
    if kinds == _CLAIMS:
        return (yield from _claim(statements, verbs, now))
    if kinds == _COMPLETIONS:
        return (yield from _complete(statements, verbs, now))
    return []


def _claim(statements: Statements, claims: Sequence[Any], now: int | None) -> Flow[list[Answer | Locked]]:
    assert statements.claim_all is not None
    members = claiming_all(claims)
    if _weight(members.by_name["command"]) > MOST_BYTES:
        return []
    written: Written = yield Write(statements.claim_all, now, members)
    if written.number != len(claims):
        return []
    # Fences are given in the order of the claims, and each row has the number of its fence.
    fences = range(written.last_row + 1 - len(claims), written.last_row + 1)
    return [
        make_granted(record=first_life(claim, written.now, Fence(fence)), how=_NEW)
        for claim, fence in zip(claims, fences, strict=True)
    ]


def _complete(statements: Statements, completions: Sequence[Any], now: int | None) -> Flow[list[Answer | Locked]]:
    assert statements.complete_all is not None
    members = completing_all(completions)
    if _weight(members.by_name["outcome"]) > MOST_BYTES:
        return []
    written: Written = yield Write(statements.complete_all, now, members)
    return [KEPT] * len(completions) if written.number == len(completions) else []


def _weight(bodies: Sequence[bytes | None]) -> int:
    return sum(map(len, filter(None, bodies)))
