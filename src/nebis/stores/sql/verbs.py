"""The SQL store: the verbs of the port, for every dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record, RecordId, State
from nebis.core.replaying import Ended
from nebis.core.verbs import Complete, Verb
from nebis.flow import Flow
from nebis.ports.store import (
    Capabilities,
    Counts,
    DefiniteFailure,
    IndefiniteFailure,
    RowLocked,
    Scan,
    SecretState,
    Tally,
)
from nebis.stores.sql import migrations
from nebis.stores.sql.ageing import SqlAgeing
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Statement, in_transaction
from nebis.stores.sql.at_once import at_once
from nebis.stores.sql.batch import Batch
from nebis.stores.sql.clockhand import STRIDE_BLOCKS, STRIDE_ROWS, TURNS_OF_BLOCKS, ClockHand
from nebis.stores.sql.dialect import Dialect
from nebis.stores.sql.exchanging import Exchange, exchange_one, is_exchange
from nebis.stores.sql.inbox import SqlInbox
from nebis.stores.sql.outbox import SqlOutbox
from nebis.stores.sql.replaying import read_ended, read_replays
from nebis.stores.sql.rows import STATES, records_of, state_of
from nebis.stores.sql.seen import SeenEnds
from nebis.stores.sql.velocity import SqlVelocity

_GENERATED_SECRET = "secret"  # noqa: S105 - the name of a row, not a secret.


class SqlStore(SqlAgeing, SqlInbox, SqlVelocity):
    """A store in one SQL database; what its flows ask is performed by the sessions of a driver."""

    def __init__(self, dialect: Dialect, capabilities: Capabilities) -> None:
        super().__init__(dialect.statements)
        self._inbox = dialect.inbox
        self._velocity = dialect.velocity
        self._dialect = dialect
        self._capabilities = capabilities
        self._seen = SeenEnds()
        self._hand = (
            ClockHand(STRIDE_ROWS)
            if dialect.statements.sweep is None
            else ClockHand(STRIDE_BLOCKS, turns=TURNS_OF_BLOCKS)
        )
        self.outbox = SqlOutbox(dialect, self.apply, self._write_audit)

    @property
    def capabilities(self) -> Capabilities:
        """Say what this store can do."""
        return self._capabilities

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        """Apply each verb to its own record and answer in the order asked."""
        if not verbs:
            return []
        if self._seen.expects_replays(verbs):
            return (yield from self._replay(verbs, now))
        if self._statements.exchange is not None and is_exchange(verbs):
            return (yield from self._exchange(verbs, now))
        if self._statements.exchange is None and (answers := (yield from at_once(self._statements, verbs, now))):
            self._seen.learn(verbs, answers)
            return answers
        return (yield from self._settle(Batch(self._statements, verbs, now)))

    def _replay(self, verbs: Sequence[Verb], now: int | None) -> Flow[list[Answer | Locked]]:
        """Read before anything is written, then do what is left in the usual way."""
        claims: Sequence[Any] = verbs  # Of nothing else a replay is expected.
        replays = yield from read_replays(self._statements.read_ended, claims, now)
        if len(replays) == len(claims):
            self._seen.note(list(replays))
            return [replays[claim.identity] for claim in claims]
        return (yield from self._settle(Batch(self._statements, verbs, now, replays)))

    def _exchange(self, verbs: Sequence[Verb], now: int | None) -> Flow[list[Answer | Locked]]:
        """Claim and complete in one trip, then look at what was in the way of either."""
        if len(verbs) == 1:
            return (yield from self._exchange_one(verbs, now))
        exchange = Exchange(verbs)
        yield from exchange.run(self._statements, now)
        if len(exchange.answers) == len(verbs):
            self._seen.note(exchange.ended)
            return exchange.in_order()
        return (yield from self._settle(Batch(self._statements, verbs, now, exchange.answers, is_tried=True)))

    def _exchange_one(self, verbs: Sequence[Verb], now: int | None) -> Flow[list[Answer | Locked]]:
        [verb] = verbs
        answer = yield from exchange_one(self._statements, verb, now)
        if answer is None:
            return (yield from self._settle(Batch(self._statements, verbs, now, {}, is_tried=True)))
        if type(verb) is Complete:
            self._seen.note((verb.ownership.identity,))
        return [answer]

    def _settle(self, batch: Batch) -> Flow[list[Answer | Locked]]:
        """Answer all that a batch has left."""
        if batch.unanswered:
            lock = self._statements.lock
            if lock is None:
                yield from in_transaction(self._apply_exclusively(batch))
            else:
                yield from self._apply_row_by_row(batch, lock)
        answers = batch.in_order()
        self._seen.learn(batch.verbs, answers)
        return answers

    def _apply_exclusively(self, batch: Batch) -> Flow[None]:
        """Do everything in one transaction that nobody else can write during."""
        yield from batch.run_fast()
        if batch.unanswered:
            yield from batch.save((yield from batch.read()))

    def _apply_row_by_row(self, batch: Batch, lock: Statement) -> Flow[None]:
        """Answer all that can be in one trip; lock only what will change."""
        if batch.fast_statements == 1:
            yield from batch.run_fast()
        elif batch.fast_statements > 1:
            yield from in_transaction(batch.run_fast())
        was_applied = bool(batch.answers)
        if not batch.unanswered:
            return
        try:
            if (yield from batch.read()):
                yield from in_transaction(self._decide_under_lock(batch, lock))
        except DefiniteFailure as failure:
            if not was_applied:
                raise
            # Neighbours are already committed, so it is no longer true that nothing changed. Every verb is safe to
            # send again, and whoever is told this does so.
            raise IndefiniteFailure(f"only a part was applied: {failure.detail}") from failure

    def _decide_under_lock(self, batch: Batch, lock: Statement) -> Flow[None]:
        yield from batch.save((yield from batch.lock_and_decide(lock)))

    def find(self, identity: bytes) -> Flow[Record | None]:
        """Read one record by its identity."""
        rows = yield from Query(self._statements.read, {"now": None}, [{"identity": identity, "position": 1}])
        return records_of(rows).get(identity)

    def expects_replay(self, identity: bytes) -> bool:
        """Tell whether this process saw the record end."""
        return self._seen.knows(identity)

    def ended(self, identities: Sequence[bytes], *, now: int | None = None) -> Flow[dict[bytes, Ended]]:
        """Read those of these records that are completed, by identity."""
        return read_ended(self._statements.read_ended, identities, now)

    def find_by_id(self, record_id: RecordId) -> Flow[Record | None]:
        """Read one record by its public id."""
        rows = yield from Query(self._statements.read_by_id, {"record_id": record_id})
        return next(iter(records_of(rows).values()), None)

    def scan(self, query: Scan, *, now: int | None = None) -> Flow[list[Record]]:
        """Read one page of records, in the order of (lease end, identity)."""
        after_lease, after_identity = query.after or (None, None)
        rows = yield from Query(
            self._statements.scan,
            {
                "now": now,
                "states": "".join(STATES[state] for state in query.states) or None,
                "tenant": query.tenant,
                "operation": query.operation,
                "resource_type": query.resource_type,
                "resource_id": query.resource_id,
                "lapsed_only": query.lapsed_only,
                "created_before": query.created_before,
                "after_lease": after_lease,
                "after_identity": after_identity,
                "limit": query.limit,
            },
        )
        return list(records_of(rows).values())

    def count(self, *, now: int | None = None) -> Flow[Counts]:
        """Count records by state."""
        rows = yield from Query(self._statements.count, {"now": now})
        found = {state_of(row[0]): row for row in rows}
        in_progress, in_doubt = found.get(State.IN_PROGRESS), found.get(State.IN_DOUBT)
        return Counts(
            by_state={state: int(found[state][1]) if state in found else 0 for state in State},
            lapsed=0 if in_progress is None else int(in_progress[2]),
            oldest_in_progress_us=None if in_progress is None else int(in_progress[3]),
            oldest_in_doubt_us=None if in_doubt is None else int(in_doubt[4]),
        )

    def hold(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Lock a record until the surrounding transaction ends, without waiting, and read it as it then stands."""
        is_held = True
        if self._statements.lock is not None:
            is_held = bool((yield from Query(self._statements.lock, {}, [{"identity": identity}])))
        # Read by a statement of its own: its snapshot is newer than the lock.
        record = yield from self.find(identity)
        return record if is_held or record is None else Locked()

    def barrier(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Read a record that no earlier transaction can still change; `Locked` while one is under way."""
        try:
            yield from Begin()
            try:
                found = yield from self._prove_settled(identity)
            except BaseException:
                yield from Rollback()
                raise
            # The lock on a record is written to the log behind whatever the record went through before. Where a standby
            # has to confirm commits, this one therefore waits until that is replicated too (F017).
            yield from Commit() if isinstance(found, Record) else Rollback()
        except RowLocked:
            return Locked()
        return found

    def _prove_settled(self, identity: bytes) -> Flow[Record | Locked | None]:
        found = yield from self.hold(identity)
        if found is not None or self._statements.probe is None:
            return found
        # A record that is being inserted by a transaction under way cannot be seen, only bumped into.
        inserted = yield from Query(self._statements.probe, {"identity": identity})
        return None if inserted else Locked()

    def clock(self) -> Flow[int]:
        """Read the database's clock, in microseconds."""
        rows = yield from Query(self._statements.clock)
        return int(rows[0][0])

    def migrate(self) -> Flow[tuple[str, ...]]:
        """Bring the schema up to this version of the code."""
        return (yield from migrations.migrate(self._dialect))

    def verify(self) -> Flow[None]:
        """Raise `SchemaMismatch` unless this version of the code can work with the schema."""
        yield from migrations.verify(self._dialect)

    def tally(self, tallies: Mapping[Tally, int]) -> Flow[None]:
        """Add to the counters that people read."""
        members = [
            {"name": tally.name, "operation": tally.operation, "value": number}
            for tally, number in sorted(tallies.items())
        ]
        if members:
            yield from in_transaction(self._tally(members))

    def _tally(self, members: Sequence[dict[str, object]]) -> Flow[None]:
        yield from Query(self._statements.add_tally, {}, members)

    def tallies(self) -> Flow[dict[Tally, int]]:
        """Read all counters."""
        rows = yield from Query(self._statements.read_tallies)
        return {Tally(name, operation): int(value) for name, operation, value in rows}

    def secrets(self, candidate: bytes | None) -> Flow[SecretState]:
        """Read what is known of secrets; of several first starters one candidate wins and all of them read it."""
        return (yield from in_transaction(self._offer_and_read_secrets(candidate)))

    def _offer_and_read_secrets(self, candidate: bytes | None) -> Flow[SecretState]:
        yield from self._lock_schema()
        if candidate is not None:
            yield from Query(self._statements.offer_secret, {"candidate": candidate})
        known = {name: bytes(value) for name, value in (yield from Query(self._statements.read_secrets))}
        generated = known.pop(_GENERATED_SECRET, None)
        return SecretState(generated=generated, check_values=frozenset(known.values()))

    def admit_secret(self, check_value: bytes) -> Flow[None]:
        """Remember that a secret with this check value is in use."""
        yield from in_transaction(self._admit_secret(check_value))

    def _admit_secret(self, check_value: bytes) -> Flow[None]:
        yield from self._lock_schema()
        yield from Query(self._statements.admit_secret, {"check_value": check_value})

    def made_with(self, number: int) -> Flow[int]:
        """Count the records that were made with the secret of this number."""
        rows = yield from Query(self._statements.count_made_with, {"number": number})
        return int(rows[0][0])

    def retire_secret(self, check_value: bytes, number: int) -> Flow[int]:
        """Forget that a secret was in use, unless records made with it are left."""
        return (yield from in_transaction(self._retire_secret(check_value, number)))

    def _retire_secret(self, check_value: bytes, number: int) -> Flow[int]:
        yield from self._lock_schema()
        left = yield from self.made_with(number)
        if not left:
            yield from Query(self._statements.retire_secret, {"check_value": check_value})
        return left

    def _lock_schema(self) -> Flow[None]:
        if self._statements.lock_schema is not None:
            yield from Query(self._statements.lock_schema)
