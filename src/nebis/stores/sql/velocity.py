"""What a SQL store counts: meters, each of them one row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from nebis.core.velocity import KEPT_SLOTS, Charge, Meter, add, wait_us
from nebis.flow import Flow
from nebis.stores.sql.asks import Query, Row, Statement, in_transaction
from nebis.stores.sql.dialect import VelocityStatements


class SqlVelocity:
    """The meters of a SQL store."""

    _velocity: VelocityStatements

    def charge(self, charges: Sequence[Charge], *, identity: bytes | None, now: int | None = None) -> Flow[int | None]:
        """Add every charge to its meter; return None, or after how many microseconds there may be room for it."""
        if not charges:
            return None
        if self._velocity.charge is not None:
            return (yield from self._charge_at_once(self._velocity.charge, charges, identity, now))
        return (yield from in_transaction(self._charge_exclusively(charges, identity, now)))

    def _charge_at_once(
        self, statement: Statement, charges: Sequence[Charge], identity: bytes | None, now: int | None
    ) -> Flow[int | None]:
        """Let the database decide, in one statement: it locks the meters in order, and adds where there is room."""
        by_bucket = {charge.bucket: charge for charge in charges}
        members = [
            {"bucket": bucket, "slot_us": charge.slot_us, "allowed": charge.limit, "weight": charge.weight}
            for bucket, charge in sorted(by_bucket.items())
        ]
        rows = yield from Query(statement, {"now": now, "identity": identity, "kept_slots": KEPT_SLOTS}, members)
        return _longest(
            wait_us(None if newest is None else Meter(newest, tuple(hits)), by_bucket[bytes(bucket)], instant)
            for bucket, instant, newest, hits in rows
        )

    def _charge_exclusively(
        self, charges: Sequence[Charge], identity: bytes | None, now: int | None
    ) -> Flow[int | None]:
        """Read, decide and write while nobody else writes."""
        statements = self._velocity
        assert statements.look is not None
        assert statements.read_meter is not None
        assert statements.write_meter is not None
        [(instant, is_known)] = yield from Query(statements.look, {"now": now, "identity": identity})
        if is_known:
            return None
        rows = yield from Query(statements.read_meter, {}, [{"bucket": charge.bucket} for charge in charges])
        meters = {bytes(row[0]): _meter(row) for row in rows}
        counted = [(charge, add(meters.get(charge.bucket), charge, instant)) for charge in charges]
        waits = [wait_us(meters.get(charge.bucket), charge, instant) for charge, meter in counted if meter is None]
        if not waits:
            members = [_values(charge, meter, instant) for charge, meter in counted if meter is not None]
            yield from Query(statements.write_meter, {}, members)
        return _longest(waits)


def _longest(waits: Iterable[int]) -> int | None:
    return max(waits, default=None)


def _meter(row: Row) -> Meter:
    return Meter(int(row[1]), tuple(json.loads(row[2])))


def _values(charge: Charge, meter: Meter, now: int) -> dict[str, object]:
    return {
        "bucket": charge.bucket,
        "newest": meter.newest,
        "allowed": charge.limit,
        "hits": json.dumps(meter.hits),
        "forget_at": now + charge.kept_us,
    }
