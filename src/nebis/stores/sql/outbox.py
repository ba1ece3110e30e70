"""The outbox of a SQL store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from nebis.core.answers import Answer, Kept, Locked
from nebis.core.owning import KEPT
from nebis.core.verbs import Complete, Verb
from nebis.flow import Flow
from nebis.ports.history import Signed
from nebis.ports.messages import Message
from nebis.ports.outbox import Depth, Entry, EntryQuery, Mark, MessageState
from nebis.stores.sql.asks import Query, Row, in_transaction
from nebis.stores.sql.dialect import Dialect
from nebis.stores.sql.members import completing

Values: TypeAlias = Mapping[str, object]


class SqlOutbox:
    """The messages in a SQL database, and the flows that stage and relay them."""

    def __init__(
        self,
        dialect: Dialect,
        apply: Callable[..., Flow[list[Answer | Locked]]],
        write_audit: Callable[[Signed, str, int | None], Flow[None]],
    ) -> None:
        self._statements = dialect.outbox
        self._complete_and_stage = dialect.statements.complete_and_stage
        self._apply = apply
        self._write_audit = write_audit

    def stage(self, messages: Sequence[Message], *, now: int | None = None) -> Flow[None]:
        """Write messages inside the transaction that is open."""
        yield from Query(self._statements.stage, {"now": now}, [_values(message) for message in messages])

    def apply_and_stage(
        self, verb: Verb, messages: Sequence[Message], *, now: int | None = None
    ) -> Flow[Answer | Locked]:
        """Apply a verb and stage messages if it is kept; where that is a trip to a server, in the same one."""
        if isinstance(verb, Complete) and self._complete_and_stage is not None:
            # The outcome goes with the first message only; a member without an owner completes nothing.
            outcome = completing(verb)
            absent = dict.fromkeys(outcome)
            members = [
                {**(outcome if place == 0 else absent), **_values(message)} for place, message in enumerate(messages)
            ]
            if (yield from Query(self._complete_and_stage, {"now": now}, members)):
                return KEPT
        [answer] = yield from self._apply([verb], now=now)
        if isinstance(answer, Kept):
            yield from self.stage(messages, now=now)
        return answer

    def take(self, taken_by: str, *, limit: int, lease_us: int, now: int | None = None) -> Flow[list[Entry]]:
        """Take messages that are due, in the order of staging."""
        values = {"now": now, "taken_by": taken_by, "limit": limit, "lease_us": lease_us}
        rows = yield from in_transaction(_rows(Query(self._statements.take, values)))
        return sorted((_entry(row) for row in rows), key=lambda entry: entry.sequence)

    def mark(self, taken_by: str, marks: Sequence[Mark], *, now: int | None = None) -> Flow[frozenset[int]]:
        """Say what became of messages."""
        if not marks:
            return frozenset()
        members = [
            {
                "sequence": mark.sequence,
                "fence": mark.fence,
                "state": int(mark.state),
                "attempts": mark.attempts,
                "pause_us": mark.pause_us,
                "error": mark.error,
            }
            for mark in marks
        ]
        query = Query(self._statements.mark, {"now": now, "taken_by": taken_by}, members)
        rows = yield from in_transaction(_rows(query))
        return frozenset(row[0] for row in rows)

    def purge(self, *, keep_us: int, limit: int, now: int | None = None) -> Flow[int]:
        """Delete messages that ended so long ago."""
        values = {"now": now, "keep_us": keep_us, "limit": limit}
        return len((yield from in_transaction(_rows(Query(self._statements.purge, values)))))

    def find(self, message_id: str) -> Flow[Entry | None]:
        """Read one message."""
        rows = yield from Query(self._statements.find, {"message_id": message_id})
        return _entry(rows[0]) if rows else None

    def entries(self, query: EntryQuery) -> Flow[list[Entry]]:
        """Read one page of messages."""
        rows = yield from Query(
            self._statements.entries,
            {
                "states": "".join(str(int(state)) for state in query.states) or None,
                "topic": query.topic,
                "after": query.after,
                "limit": query.limit,
            },
        )
        return [_entry(row) for row in rows]

    def depth(self, *, now: int | None = None) -> Flow[Depth]:
        """Count what waits."""
        [[pending, parked, oldest, clock]] = yield from Query(self._statements.depth, {"now": now})
        return Depth(pending=pending, parked=parked, oldest_pending_us=oldest, now=clock)

    def decide(
        self, message_id: str, state: MessageState, signed: Signed, *, now: int | None = None
    ) -> Flow[Entry | None]:
        """Retry or discard, and write it down in the same commit."""
        return (yield from in_transaction(self._decide(message_id, state, signed, now)))

    def _decide(self, message_id: str, state: MessageState, signed: Signed, now: int | None) -> Flow[Entry | None]:
        values = {"now": now, "message_id": message_id, "state": int(state)}
        rows = yield from Query(self._statements.decide, values)
        yield from self._write_audit(signed, "done" if rows else "refused", now)
        return _entry(rows[0]) if rows else None


def _rows(query: Query) -> Flow[list[Row]]:
    return (yield from query)


def _values(message: Message) -> Values:
    return {
        "message_id": message.id,
        "topic": message.topic,
        "content_type": message.content_type,
        "ordering_key": message.ordering_key,
        "headers": json.dumps(message.headers, ensure_ascii=False, separators=(",", ":")),
        "payload": message.payload,
        "available_at": message.available_at,
    }


def _entry(row: Row) -> Entry:
    sequence, message_id, topic, payload, content_type, headers, ordering_key, state, attempts, fence, *rest = row
    created_at, available_at, ended_at, taken_by, last_error = rest
    message = Message(
        id=message_id,
        topic=topic,
        payload=bytes(payload),
        content_type=content_type,
        headers=tuple((name, value) for name, value in json.loads(headers)),
        ordering_key=ordering_key,
        available_at=available_at,
    )
    return Entry(
        sequence=sequence,
        message=message,
        state=MessageState(state),
        attempts=attempts,
        fence=fence,
        created_at=created_at,
        available_at=available_at,
        ended_at=ended_at,
        taken_by=taken_by,
        last_error=last_error,
    )
