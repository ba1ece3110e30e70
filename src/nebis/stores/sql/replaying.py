"""Replays in one trip that writes nothing, and that reads no more of a record than is told."""

from __future__ import annotations

from collections.abc import Iterable

from nebis.core.answers import Answer, Locked, make_replay
from nebis.core.ids import id_of
from nebis.core.record import make_told
from nebis.core.replaying import is_replay
from nebis.core.verbs import Claim
from nebis.flow import Flow
from nebis.stores.sql.asks import Columns, Query, Statement
from nebis.stores.sql.rows import outcome_kind_of


def read_replays(statement: Statement, claims: Iterable[Claim], now: int | None) -> Flow[dict[bytes, Answer | Locked]]:
    """Return the replays among these, by identity; all others are for the state machine."""
    asked = {claim.identity: claim for claim in claims}
    rows = yield Query(statement, {"now": now}, Columns(identity=list(asked)))
    replays: dict[bytes, Answer | Locked] = {}
    for identity, record_id, operation, version, fingerprint, kind, outcome, expires_at, instant in rows:
        if is_replay(asked[identity], instant, expires_at, version, fingerprint):
            # SQLite keeps ids as bytes.
            public_id = id_of(record_id) if type(record_id) is bytes else record_id
            replays[identity] = make_replay(
                record=make_told(
                    record_id=public_id,
                    operation=operation,
                    outcome_kind=outcome_kind_of(kind),
                    outcome=outcome,
                    expires_at=expires_at,
                )
            )
    return replays
