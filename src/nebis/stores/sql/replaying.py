"""Completed records in one trip that writes nothing, and that reads no more of them than is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nebis.core.answers import Answer, Locked, make_replay
from nebis.core.ids import id_of
from nebis.core.record import make_told
from nebis.core.replaying import Ended, make_ended
from nebis.core.verbs import Claim
from nebis.flow import Flow
from nebis.stores.sql.asks import Columns, Query, Row, Statement
from nebis.stores.sql.rows import outcome_kind_of


def read_ended(statement: Statement, identities: Sequence[bytes], now: int | None) -> Flow[dict[bytes, Ended]]:
    """Return those of these records that are completed, by identity."""
    rows: list[Row] = yield Query(statement, {"now": now}, Columns({"identity": list(identities)}))
    ended = {}
    for identity, record_id, operation, version, fingerprint, kind, outcome, expires_at, instant in rows:
        told = make_told(
            # SQLite keeps ids as bytes.
            record_id=id_of(record_id) if type(record_id) is bytes else record_id,
            operation=operation,
            outcome_kind=outcome_kind_of(kind),
            outcome=outcome,
            expires_at=expires_at,
        )
        ended[identity] = make_ended(told, version, fingerprint, instant)
    return ended


def read_replays(statement: Statement, claims: Iterable[Claim], now: int | None) -> Flow[dict[bytes, Answer | Locked]]:
    """Return the replays among these, by identity; all others are for the state machine."""
    asked = {claim.identity: claim for claim in claims}
    ended = yield from read_ended(statement, list(asked), now)
    return {
        identity: make_replay(record=each.told)
        for identity, each in ended.items()
        if each.answers(asked[identity].fingerprints)
    }
