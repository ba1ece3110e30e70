"""How the records of a SQL store age: a stride at a time, in one look at each part of the table (decision 0010)."""

from __future__ import annotations

from nebis.flow import Flow
from nebis.ports.store import Swept
from nebis.stores.sql.asks import Query, Statement, in_transaction
from nebis.stores.sql.clockhand import ClockHand
from nebis.stores.sql.dialect import Statements, VelocityStatements


class SqlAgeing:
    """The sweeps of a SQL store."""

    _statements: Statements
    _velocity: VelocityStatements
    _hand: ClockHand

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        """Let at most `limit` records age that are due; nothing in progress or in doubt (I9)."""
        if self._hand.is_at_start:
            yield from in_transaction(self._forget_the_rest({"limit": limit, "now": now}))
        if self._statements.sweep is None:
            return (yield from in_transaction(self._sweep_rows(limit, now)))
        return (yield from self._sweep_blocks(self._statements.sweep, limit, now))

    def _sweep_blocks(self, statement: Statement, limit: int, now: int | None) -> Flow[Swept]:
        """Do everything in one statement, which is one trip and one commit."""
        stride = self._hand.next_stride()
        part: dict[str, object] = {"limit": limit, "now": now, **stride._asdict()}
        [(aged, stopped_at, blocks, fence)] = yield from Query(statement, part, alone=self._statements.sweep_alone)
        return self._swept(aged, stopped_at, stride.end, blocks, fence)

    def _sweep_rows(self, limit: int, now: int | None) -> Flow[Swept]:
        """Do the same in some statements that nobody else writes between."""
        statements = self._statements
        assert statements.ends is not None
        assert statements.remove is not None
        assert statements.expire is not None
        assert statements.drop_effects is not None
        [(lowest, highest, fence)] = yield from Query(statements.ends)
        first, end, *_ = self._hand.next_stride(lowest or 0)
        part: dict[str, object] = {"now": now, "first": first, "end": end}
        removed = yield from Query(statements.remove, {**part, "limit": limit})
        expired = yield from Query(statements.expire, {**part, "limit": limit - len(removed)})
        if expired:
            # Results of effects are as sensitive as the outcome. Records that are deleted take theirs with them.
            yield from Query(statements.drop_effects, {}, [{"record_id": row[0]} for row in expired])
        aged = len(removed) + len(expired)
        return self._swept(aged, first if aged >= limit else None, end, (highest or 0) + 1, fence)

    def _swept(self, aged: int, stopped_at: int | None, end: int, places: int, fence: int) -> Swept:
        ends_round = False
        if stopped_at is None:
            ends_round = self._hand.passed(end, places)
        else:
            self._hand.stopped(stopped_at, places)
        return Swept(aged, self._hand.strides(places), ends_round, fence)

    def _forget_the_rest(self, shared: dict[str, object]) -> Flow[None]:
        yield from Query(self._statements.forget_late_results, shared)
        yield from Query(self._velocity.forget, shared)
