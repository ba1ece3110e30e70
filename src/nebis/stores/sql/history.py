"""What a SQL store keeps for people: attempts, late results, and the audit."""

from __future__ import annotations

from collections.abc import Sequence

from nebis.core.answers import Answer, Grant, Locked
from nebis.core.record import Fence, RecordId
from nebis.flow import Flow
from nebis.ports.history import ATTEMPTS_KEPT, AttemptNote, AuditLine, LateResult, PersonVerb, Signed, word_of
from nebis.stores.sql.asks import Query, in_transaction
from nebis.stores.sql.batch import Batch
from nebis.stores.sql.dialect import Statements

_WHOLE_OPERATION = ""
"""Stands for the absence of an effect's name in the key of a late result, where NULL would be unlike itself."""


class SqlHistory:
    """The history part of a SQL store."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def note_attempts(self, notes: Sequence[AttemptNote]) -> Flow[None]:
        """Write down who holds which record, and drop what is too old to be read."""
        if notes:
            yield from in_transaction(self._note_attempts(notes))

    def _note_attempts(self, notes: Sequence[AttemptNote]) -> Flow[None]:
        members = [
            {
                "record_id": note.record_id,
                "fence": note.fence,
                "started_at": note.started_at,
                "lease_us": note.lease_us,
                "host": note.host,
                "pid": note.pid,
                "how": note.how.value,
            }
            for note in notes
        ]
        yield from Query(self._statements.note_attempt, {}, members)
        trimmed = [{"record_id": note.record_id, "kept": ATTEMPTS_KEPT} for note in notes]
        yield from Query(self._statements.trim_attempts, {}, trimmed)

    def attempts_of(self, record_id: RecordId) -> Flow[list[AttemptNote]]:
        """Read the attempts of this life that were written down."""
        rows = yield from Query(self._statements.read_attempts, {"record_id": record_id})
        return [
            AttemptNote(
                record_id=record_id,
                fence=Fence(fence),
                started_at=started_at,
                lease_us=lease_us,
                host=host,
                pid=pid,
                how=Grant(how),
            )
            for fence, started_at, lease_us, host, pid, how in rows
        ]

    def keep_late_result(self, late: LateResult, *, keep_us: int, now: int | None = None) -> Flow[None]:
        """Keep a result that was refused; the first copy of it stays."""
        values = {
            "now": now,
            "record_id": late.record_id,
            "fence": late.fence,
            "effect": _WHOLE_OPERATION if late.effect is None else late.effect,
            "body": late.body,
            "keep_us": keep_us,
        }
        yield from in_transaction(self._run(Query(self._statements.keep_late_result, values)))

    def note_worker(self, *, now: int | None = None) -> Flow[None]:
        """Write down that a worker is alive now."""
        yield from in_transaction(self._run(Query(self._statements.note_worker, {"now": now})))

    def worker_seen_at(self) -> Flow[int | None]:
        """Read when a worker was last alive."""
        rows = yield from Query(self._statements.read_worker)
        return int(bytes(rows[0][0])) if rows else None

    def late_results_of(self, record_id: RecordId) -> Flow[list[LateResult]]:
        """Read the late results of a record."""
        rows = yield from Query(self._statements.read_late_results, {"record_id": record_id})
        return [
            LateResult(
                record_id=record_id,
                fence=Fence(fence),
                effect=None if effect == _WHOLE_OPERATION else effect,
                body=bytes(body),
                kept_at=kept_at,
            )
            for fence, effect, body, kept_at in rows
        ]

    def decide(self, verb: PersonVerb, signed: Signed, *, now: int | None = None) -> Flow[Answer | Locked]:
        """Apply what a person asked for and write it down, in one commit."""
        batch = Batch(self._statements, [verb], now)
        return (yield from in_transaction(self._decide(batch, verb.identity, signed, now)))

    def _decide(self, batch: Batch, identity: bytes, signed: Signed, now: int | None) -> Flow[Answer | Locked]:
        changes = yield from batch.read()
        if changes and self._statements.lock is not None:
            changes = yield from batch.lock_and_decide(self._statements.lock)
        yield from batch.save(changes)
        answer = batch.answers[identity]
        if not isinstance(answer, Locked):
            yield from self._write_audit(signed, word_of(answer), now)
        return answer

    def audit(self, signed: Signed, answer: str, *, now: int | None = None) -> Flow[None]:
        """Write down what was asked for and not even tried."""
        yield from in_transaction(self._write_audit(signed, answer, now))

    def _write_audit(self, signed: Signed, answer: str, now: int | None) -> Flow[None]:
        values = {
            "now": now,
            "record_id": signed.record_id,
            "fence_seen": signed.fence_seen,
            "who": signed.who,
            "what": signed.what,
            "reason": signed.reason,
            "answer": answer,
        }
        yield from Query(self._statements.write_audit, values)

    def audits_of(self, record_id: RecordId) -> Flow[list[AuditLine]]:
        """Read what people did to a record."""
        rows = yield from Query(self._statements.read_audits, {"record_id": record_id})
        return [
            AuditLine(
                at=at,
                signed=Signed(who=who, what=what, reason=reason, record_id=record_id, fence_seen=fence_seen),
                answer=answer,
            )
            for at, fence_seen, who, what, reason, answer in rows
        ]

    def _run(self, query: Query) -> Flow[None]:
        yield from query
