"""Claims and completions: what nearly every batch is made of, written straight, and in one trip.

Whatever does not go as hoped is left unanswered, for `batch` to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import pack, unpack
from typing import Any, Final

from nebis.core.answers import Answer, Grant, Granted, Kept, Locked, make_granted
from nebis.core.claiming import first_life
from nebis.core.owning import KEPT
from nebis.core.verbs import Claim, Complete, Verb
from nebis.flow import Flow
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.dialect import Statements
from nebis.stores.sql.members import (
    CLAIMS,
    COMPLETIONS,
    claiming,
    claiming_all,
    completing,
    completing_all,
    exchanging,
    identities_of,
    identity,
    owned_identity,
)

_EXCHANGED: Final = frozenset({Claim, Complete})
_IDENTITY_BYTES: Final = 32
_NEW: Final = Grant.NEW
"""Looked up once: every new key is answered with it."""


def is_exchange(verbs: Iterable[Verb]) -> bool:
    """Tell whether these are claims and completions and nothing else."""
    return _EXCHANGED.issuperset(map(type, verbs))


def exchange_one(statements: Statements, verb: Any, now: int | None) -> Flow[Granted | Kept | None]:
    """Claim or complete one record; return None where that did not go as hoped.

    What puts answers into one row, and what goes around others, would only cost a lone verb time.
    """
    rows: list[Row]
    if type(verb) is Claim:
        rows = yield Query(statements.claim, {"now": now}, [claiming(verb)])
        if not rows:
            return None
        [(_, fence, instant)] = rows
        return make_granted(record=first_life(verb, instant, fence), how=_NEW)
    rows = yield Query(statements.complete, {"now": now}, [completing(verb)], statements.complete_alone)
    return KEPT if rows else None


class Exchange:
    """The claims and completions of one batch, and the answers to those that went as hoped."""

    def __init__(self, verbs: Sequence[Any]) -> None:
        kinds = set(map(type, verbs))
        claims: list[Claim]
        completions: list[Complete]
        # Most batches are of one kind, and nothing in them has to be told apart.
        if kinds == CLAIMS:
            claims, completions = list(verbs), []
        elif kinds == COMPLETIONS:
            claims, completions = [], list(verbs)
        else:
            claims = [verb for verb in verbs if type(verb) is Claim]
            completions = [verb for verb in verbs if type(verb) is Complete]
        asked = identities_of(verbs, kinds)
        assert len(set(asked)) == len(verbs), "an identity appears at most once in a batch"
        # Sorted: a claim waits for whoever is inserting the same key. Where that may last, the statement sorts too.
        claims.sort(key=identity)
        self._claims, self._completions, self._asked = claims, completions, asked
        self._new: list[bytes] = list(map(identity, claims))
        self._owned: list[bytes] = list(map(owned_identity, completions))
        self.answers: dict[bytes, Answer | Locked] = {}
        """By identity; one that is not in here is unanswered."""
        self.ended: list[bytes] = []
        """The identities of the records that were completed."""

    def run(self, statements: Statements, now: int | None) -> Flow[None]:
        """Claim and complete in one trip."""
        shared = {"now": now}
        rows: list[Row]
        if not self._completions:
            assert statements.claim_all is not None
            members = claiming_all(self._claims)
            rows = yield Query(statements.claim_all, shared, members, statements.claim_all_alone)
            self._grant_all(*rows[0])
        elif not self._claims:
            assert statements.complete_all is not None
            members = completing_all(self._completions)
            rows = yield Query(statements.complete_all, shared, members, statements.complete_all_alone)
            self._keep(rows[0][0] or b"")
        else:
            assert statements.exchange is not None
            members = exchanging(self._claims, self._completions)
            rows = yield Query(statements.exchange, shared, members, statements.exchange_alone)
            *begun, ended = rows[0]
            self._grant_all(*begun)
            self._keep(ended or b"")

    def _grant_all(self, begun: bytes | None, drawn: bytes, instant: int) -> None:
        if begun is not None:
            self._grant(begun, unpack(f"!{len(drawn) // 8}q", drawn), instant)

    def _grant(self, begun: bytes, fences: Sequence[Any], instant: int) -> None:
        """Answer the claims that began a record, by their identities end to end."""
        granted: Iterable[Claim] = self._claims
        if begun != b"".join(self._new):  # Not all of them did, or not in this order.
            asked = dict(zip(self._new, self._claims, strict=True))
            granted = [asked[identity] for identity in _cut(begun)]
        answers = self.answers
        for claim, fence in zip(granted, fences, strict=True):
            answers[claim.identity] = make_granted(record=first_life(claim, instant, fence), how=_NEW)

    def _keep(self, ended: bytes) -> None:
        """Answer the completions that were stored, by their identities end to end."""
        # Each comes once, so that as many as were hoped for are all of them.
        is_all = len(ended) == _IDENTITY_BYTES * len(self._owned)
        self.ended = self._owned if is_all else list(_cut(ended))
        self.answers.update(dict.fromkeys(self.ended, KEPT))

    def in_order(self) -> list[Answer | Locked]:
        """Return all answers, in the order in which was asked."""
        return list(map(self.answers.__getitem__, self._asked))


def _cut(joined: bytes) -> Iterator[bytes]:
    return (joined[place : place + _IDENTITY_BYTES] for place in range(0, len(joined), _IDENTITY_BYTES))


def begun_in_one_row(rows: Sequence[Row]) -> Row:
    """Return what claims were told row by row, as the statement for many tells it."""
    if not rows:
        return None, None, None
    identities, fences, [instant, *_] = zip(*rows, strict=True)
    return b"".join(identities), pack(f"!{len(fences)}q", *fences), instant


def ended_in_one_row(rows: Sequence[Row]) -> Row:
    """Return what completions were told row by row, as the statement for many tells it."""
    return (b"".join([row[0] for row in rows]) or None,)
