"""What a SQL store keeps for consumers: parked messages, and how far each partition is applied."""

from __future__ import annotations

import json
from uuid import UUID

from nebis.core.record import RecordId
from nebis.delivery import ParkReason
from nebis.flow import Flow
from nebis.ports.history import Signed
from nebis.ports.inbox import Letter, ParkDecision, ParkedLetter, Place, Progress
from nebis.stores.sql.asks import Query, Row, in_transaction
from nebis.stores.sql.dialect import InboxStatements
from nebis.stores.sql.history import SqlHistory

_PARKED, _DUE = "parked", "redrive"


class SqlInbox(SqlHistory):
    """The inbox part of a SQL store."""

    _inbox: InboxStatements

    def park(self, parked: ParkedLetter, *, now: int | None = None) -> Flow[None]:
        """Keep a message, or give one that is kept already its new reason."""
        letter = parked.letter
        values = {
            "now": now,
            "parked_id": letter.parked_id,
            "consumer": letter.consumer,
            "topic": letter.topic,
            "message_id": letter.message_id,
            "partition_name": letter.partition,
            "source_offset": letter.offset,
            "content_type": letter.content_type,
            "headers": json.dumps(letter.headers),
            "payload": letter.payload,
            "payload_bytes": letter.payload_bytes,
            "reason": parked.reason.value,
            "detail": parked.detail,
            "attempts": parked.attempts,
            "record_id": parked.record_id,
            "state": _DUE if parked.is_due else _PARKED,
        }
        yield from in_transaction(self._rows(Query(self._inbox.park, values)))

    def unpark(self, parked_id: UUID) -> Flow[bool]:
        """Let go of a parked message."""
        return bool((yield from in_transaction(self._rows(Query(self._inbox.unpark, {"parked_id": parked_id})))))

    def decide_parked(
        self, parked_id: UUID, decision: ParkDecision, signed: Signed, *, now: int | None = None
    ) -> Flow[bool]:
        """Do what a person asked for and write it down, in one commit."""
        return (yield from in_transaction(self._decide_parked(parked_id, decision, signed, now)))

    def _decide_parked(self, parked_id: UUID, decision: ParkDecision, signed: Signed, now: int | None) -> Flow[bool]:
        statement = self._inbox.make_due if decision is ParkDecision.RETRY else self._inbox.unpark
        is_there = bool((yield from Query(statement, {"parked_id": parked_id})))
        yield from self._write_audit(signed, "done" if is_there else "absent", now)
        return is_there

    def find_parked(self, parked_id: UUID) -> Flow[ParkedLetter | None]:
        """Read one parked message."""
        rows = yield from Query(self._inbox.find_parked, {"parked_id": parked_id})
        return next((_parked(row) for row in rows), None)

    def list_parked(
        self, *, consumer: str | None = None, after: tuple[int, UUID] | None = None, limit: int = 100
    ) -> Flow[list[ParkedLetter]]:
        """Read one page of parked messages without their payloads."""
        after_at, after_id = after or (None, None)
        values = {"consumer": consumer, "after_at": after_at, "after_id": after_id, "limit": limit}
        rows = yield from Query(self._inbox.list_parked, values)
        return [_parked((*row, None)) for row in rows]

    def due_letters(self, consumer: str, *, before: int, limit: int = 100) -> Flow[list[UUID]]:
        """Read which messages are to be sent in again."""
        rows = yield from Query(self._inbox.due_letters, {"consumer": consumer, "before": before, "limit": limit})
        return [_uuid(row[0]) for row in rows]

    def count_parked(self) -> Flow[dict[str, int]]:
        """Count parked messages by consumer."""
        rows = yield from Query(self._inbox.count_parked)
        return {consumer: int(number) for consumer, number in rows}

    def progress(self, consumer: str, partition: str) -> Flow[Progress | None]:
        """Read how far a consumer has applied a partition."""
        rows = yield from Query(self._inbox.read_progress, {"consumer": consumer, "partition_name": partition})
        return next((_progress(row) for row in rows), None)

    def progresses(self, consumer: str | None = None) -> Flow[list[Progress]]:
        """Read how far consumers are."""
        rows = yield from Query(self._inbox.read_progress, {"consumer": consumer, "partition_name": None})
        return [_progress(row) for row in rows]

    def advance(self, place: Place, *, now: int | None = None) -> Flow[None]:
        """Write down that an offset is applied; part of the transaction that it runs in, if any."""
        values = {
            "now": now,
            "consumer": place.consumer,
            "partition_name": place.partition,
            "offset": place.offset,
        }
        yield from in_transaction(self._rows(Query(self._inbox.advance, values)))

    def _rows(self, query: Query) -> Flow[list[Row]]:
        return (yield from query)


def _parked(row: Row) -> ParkedLetter:
    parked_id, consumer, topic, message_id, partition, offset, content_type, headers, payload_bytes = row[:9]
    reason, detail, attempts, record_id, state, parked_at, updated_at, payload = row[9:]
    return ParkedLetter(
        letter=Letter(
            parked_id=_uuid(parked_id),
            consumer=consumer,
            topic=topic,
            message_id=message_id,
            partition=partition,
            offset=offset,
            content_type=content_type,
            headers=tuple((name, value) for name, value in json.loads(headers)),
            payload=None if payload is None else bytes(payload),
            payload_bytes=payload_bytes,
        ),
        reason=ParkReason(reason),
        detail=detail,
        attempts=attempts,
        record_id=None if record_id is None else RecordId(_uuid(record_id)),
        is_due=state == _DUE,
        parked_at=parked_at,
        updated_at=updated_at,
    )


def _progress(row: Row) -> Progress:
    consumer, partition, last_offset, gaps, gap_first, gap_last, updated_at = row
    return Progress(
        consumer=consumer,
        partition=partition,
        last_offset=last_offset,
        gaps=gaps,
        gap=None if gap_first is None else (gap_first, gap_last),
        updated_at=updated_at,
    )


def _uuid(value: UUID | bytes) -> UUID:
    """Read an id: SQLite keeps it as bytes."""
    return value if isinstance(value, UUID) else UUID(bytes=value)
