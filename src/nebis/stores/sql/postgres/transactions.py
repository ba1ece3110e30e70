"""A transaction in which the application's own rows and the outcome are committed together, whatever the driver.

Written once, as flows: a driver only starts, ends and performs. READ COMMITTED is what the key path is made for. A
transaction that we begin may be REPEATABLE READ or SERIALIZABLE all the same: whoever moved the record first makes it
fail with 40001, definitely, and its caller is told to try again. One that is already open may not, since its snapshot
is older than the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, StoreFailure
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row, Statement
from nebis.stores.sql.exchanging import begun_in_one_row, ended_in_one_row
from nebis.stores.sql.postgres.conversation import Control, Conversation, Execute, executing
from nebis.stores.sql.postgres.failures import Stage, Trouble, judge, leaves_connection_usable
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions_asks import Elsewhere, Finish, FinishWith, Start, Undo
from nebis.stores.sql.postgres.transactions_home import Home

T = TypeVar("T")

_PART = "nebis_verb"
"""A savepoint around one store flow, so that a flow that fails leaves nothing behind."""

_SAMPLES: Mapping[str, object] = {
    "bytea": b"\x00nebis\xff",
    "uuid": UUID("6e656269-7300-4000-8000-000000000001"),
    "text": "nebis",
    "bigint": 2**40,
    "integer": 2**20,
    "smallint": 2**10,
    "boolean": True,
}
_SAMPLE_ARRAYS = {name: [value] for name, value in _SAMPLES.items()}
_SAMPLE_NAMES = frozenset(_SAMPLES)
_RECENT_ISOLATION = "read committed"

_IF_SAME = {"complete": "complete_inside", "complete_and_stage": "complete_and_stage_inside"}
"""Which statement does the same as one of the store's, but only in the transaction that was enrolled."""
TELL_WHETHER_SAME = frozenset({"current", *_IF_SAME.values()})
"""The statements whose first column says whether the transaction is still the same."""
_OR_FAIL = {"complete": "complete_or_fail", "complete_and_stage": "complete_and_stage_or_fail"}
"""Which statement does the same and fails where it cannot, so that COMMIT can go out with it."""
_ROW_BY_ROW = {"claim_all": ("claim", begun_in_one_row), "complete_all": ("complete", ended_in_one_row)}
"""Which statement does the same as one for batches and is guarded inside a transaction, and what joins its rows."""
ENDED_INSIDE = "2201G"
"""How those of `_OR_FAIL` fail if the transaction is not the same any more."""


class _EndedInside(Exception):
    """A statement that wrote nothing, because its transaction is not the current one any more."""


class TransactionTalk(Conversation):
    """What is said on one connection from the beginning of a transaction to its end."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        describe: Callable[[Exception], Trouble],
        *,
        is_ours: bool,
        is_open: bool,
        is_plain: bool = False,
        can_finish_with: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start with nothing said. `is_open` tells whether the application has begun the transaction by itself.

        `is_plain` says that nobody has changed how the connection writes and reads values, `can_finish_with` whether it
        knows `FinishWith`.
        """
        super().__init__(opening="", wraps_statements=False, describe=describe)
        self._home = home
        self._settings = settings
        self._is_ours = is_ours
        self._was_open = is_open
        self._is_plain = is_plain
        self._can_finish_with = can_finish_with
        self._has_claimed = False
        self.is_finished = False
        """Whether it was committed together with the last flow, so that `commit` has nothing left to do."""
        self._number = ""
        self._is_unenrolled = False
        self._is_unproved = False
        self._may_commit = False
        self._is_in_part = False
        self._has_failed = False

    def begin(self) -> Flow[None]:
        """Start, and make sure that the promise can be kept here; raise `MisuseError` where it cannot."""
        try:
            yield from self._say(Start(is_ours=self._is_ours), Stage.INSIDE)
            self._is_inside = True
            if self._is_ours:  # Hardly anything can be wrong here; so it goes with the first claim, for one trip less.
                self._is_unenrolled = True
            else:
                yield from self._enrol()
        except MisuseError:
            if not self._was_open:  # What the application began is left to the application.
                yield from self._undo()
            raise
        except BaseException:
            yield from self._undo()
            raise

    def _enrol(self) -> Flow[None]:
        ask = Execute(self._statement("enrol"), self._bounds() | _SAMPLE_ARRAYS, _SAMPLE_NAMES)
        [row] = yield from self._say(ask, Stage.INSIDE)
        yield from self._enrolled(row)

    def _bounds(self) -> dict[str, object]:
        return {"idle_milliseconds": f"{self._settings.idle_in_transaction_seconds * 1000:.0f}"}

    def _enrolled(self, row: Row) -> Flow[None]:
        self._is_unenrolled = False
        self._number, isolation, is_read_only, address, _, _, *echo = row
        # Nothing comes back where nothing was sent, because the connection is plain.
        changed = [name for (name, sent), got in zip(_SAMPLES.items(), echo, strict=bool(echo)) if sent != got]
        if changed:
            raise MisuseError(
                f"The connection has a codec of its own for {', '.join(changed)}, which Nebis needs as the driver has "
                "it; hand in another connection."
            )
        if is_read_only:
            raise MisuseError("The transaction is read-only; hand in a connection that may write.")
        if self._was_open and isolation != _RECENT_ISOLATION:
            raise MisuseError(
                f"The connection is already inside a {isolation.upper()} transaction, which cannot see what was "
                "claimed since it began; commit or roll back before you hand it in, or use READ COMMITTED."
            )
        if not self._is_ours:
            yield from self._home.check(address)

    def lend(self, flow: Flow[T]) -> Flow[T]:
        """Answer a flow inside a transaction that is none of ours, and leave it as it is."""
        self._is_inside = True
        [[address]] = yield from self._say(Execute(self._statement("address")), Stage.INSIDE)
        yield from self._home.check(address)
        return (yield from self.hold(flow))

    def hold(self, flow: Flow[T]) -> Flow[T]:
        """Answer all that a flow asks, inside the transaction; what it leaves undecided is undone."""
        try:
            return (yield from self._relay(flow))
        finally:
            if self._is_in_part:
                with suppress(StoreFailure):  # What made the flow leave is the failure to tell.
                    yield from self._roll_part_back()

    def settle(self, flow: Flow[T], *, may_commit: bool = False) -> Flow[T | None]:
        """Answer the last flow inside, as `hold` does; return None if somebody else ended the transaction.

        Raises `DefiniteFailure` if the transaction failed and left nothing. With `may_commit` COMMIT may go along, and
        whatever `commit` raises may be raised.
        """
        self._is_unproved, self._may_commit = True, may_commit
        try:
            return (yield from self.hold(flow))
        except _EndedInside:
            return None

    @property
    def commits_with_last(self) -> bool:
        """Whether the last flow's completion and COMMIT can be one trip.

        Only where the claim is in the same transaction: then a record that is found in progress, after a COMMIT whose
        answer was lost, says that somebody had committed inside. And not where a failure was kept from the server.
        """
        return self._has_claimed and not self._has_failed and not self.is_spoilt and self._can_finish_with()

    def _answer(self, ask: Ask[Any]) -> Flow[Any]:
        assert not self.is_finished, "Nothing is asked after the completion that was committed."
        if self._is_unproved:
            return (yield from self._answer_if_same(ask))
        match ask:
            case Query() if ask.statement.name == "claim":
                return (yield from self._claim(ask))
            case Query() if ask.statement.name in _ROW_BY_ROW:
                return (yield from self._answer_in_one_row(ask))
            case _ if self._is_unenrolled:
                yield from self._enrol()
                return (yield from self._answer(ask))
            case Query():
                return (yield from self._ask(ask))
            case Begin():
                if self._is_in_part:
                    raise MisuseError("A part is open already; ask for Commit or Rollback before the next Begin.")
                yield from self._say(Control(f"SAVEPOINT {_PART}"), Stage.INSIDE)
                self._is_in_part = True
            case Commit():
                self._is_in_part = False
                yield from self._say(Control(f"RELEASE SAVEPOINT {_PART}"), Stage.INSIDE)
            case Rollback():
                yield from self._roll_part_back()
            case _:
                raise MisuseError(f"{type(ask).__name__} is not something that a SQL transaction can do.")
        return None

    def _answer_if_same(self, ask: Ask[Any]) -> Flow[Any]:
        """Answer the first ask of the last flow; where a statement can tell by itself, it is no trip to find out."""
        if isinstance(ask, Query) and ask.statement.name in _ROW_BY_ROW:
            self._may_commit = False  # COMMIT goes out with the completion of one record only.
            return (yield from self._answer_in_one_row(ask))
        self._is_unproved = False
        if isinstance(ask, Query) and ask.statement.name in _OR_FAIL and self._may_commit:
            return (yield from self._commit_with(ask))
        if isinstance(ask, Query) and ask.statement.name in _IF_SAME:
            rows = yield from self._told(_IF_SAME[ask.statement.name], ask)
            if not rows[0][0]:
                raise _EndedInside
            return [row[1:] for row in rows if row[1] is not None]
        if not (yield from self.is_same()):
            raise _EndedInside
        return (yield from self._answer(ask))

    def _answer_in_one_row(self, query: Query) -> Flow[list[Row]]:
        name, joined = _ROW_BY_ROW[query.statement.name]
        rows = yield from self._answer(Query(self._statement(name), query.shared, query.members))
        return [joined(rows)]

    def _commit_with(self, query: Query) -> Flow[list[Row]]:
        """Complete and commit; either both happen or neither. Raises what `_told` or `commit` would raise."""
        statement = self._statement(_OR_FAIL[query.statement.name])
        last = Query(statement, {**query.shared, "number": self._number}, query.members)
        try:
            yield from self._finish_with(executing(statement, last))
        except IndefiniteFailure:
            self.is_spoilt = True
            raise
        except DefiniteFailure as failure:
            yield from self._undone(failure)
            raise _EndedInside from failure
        self._is_inside, self.is_finished = False, True
        assert query.members is not None
        return [(query.members[0]["identity"],)]

    def _finish_with(self, last: Execute) -> Flow[None]:
        error = yield from self._say(FinishWith(last), Stage.COMMITTING)
        if error is None:
            return self._require_replication()
        trouble = self._describe(error)
        self.is_spoilt = not leaves_connection_usable(trouble)
        if trouble.sqlstate == ENDED_INSIDE:
            raise _EndedInside
        raise judge(trouble, Stage.INSIDE)

    def _claim(self, query: Query) -> Flow[list[Row]]:
        """Claim, without waiting for a twin that is claiming the same keys in a transaction of its own."""
        shared = {**query.shared, "lock_milliseconds": f"{self._settings.lock_timeout_seconds * 1000:.0f}"}
        members = [{**member, "lock_key": _lock_key(member["identity"])} for member in query.members or ()]
        if self._is_unenrolled:
            name, samples = ("claim_and_enrol_plain", {}) if self._is_plain else ("claim_and_enrol", _SAMPLE_ARRAYS)
            rows = yield from self._ask(Query(self._statement(name), shared | self._bounds() | samples, members))
            yield from self._enrolled(rows[0][5:])
            rows = [row[:5] for row in rows]
        else:
            rows = yield from self._ask(Query(self._statement("claim_inside"), shared, members))
        self._has_claimed = True
        if not rows[0][0]:
            raise RowLocked("another transaction is claiming the same key")
        return [row[2:] for row in rows if row[2] is not None]

    def _ask(self, query: Query) -> Flow[list[Row]]:
        try:
            return (yield from self._query(query))
        except DefiniteFailure:
            self._has_failed = self._has_failed or not self._is_in_part
            raise

    def _roll_part_back(self) -> Flow[None]:
        self._is_in_part = False
        yield from self._say(Control(f"ROLLBACK TO SAVEPOINT {_PART}; RELEASE SAVEPOINT {_PART}"), Stage.INSIDE)

    def is_same(self) -> Flow[bool]:
        """Tell whether nobody else ended the transaction; raise `DefiniteFailure` if it failed and left nothing."""
        rows = yield from self._told("current", Query(self._statement("current")))
        return bool(rows[0][0])

    def _told(self, name: str, query: Query) -> Flow[list[Row]]:
        """Say a statement that tells whether the transaction is still the same; a failed one is looked up elsewhere."""
        if self._is_unenrolled:
            yield from self._enrol()
        shared = {**query.shared, "number": self._number}
        try:
            return (yield from self._ask(Query(self._statement(name), shared, query.members)))
        except StoreFailure as failure:
            yield from self._undone(failure)
            return [(False,)]

    def _undone(self, failure: StoreFailure) -> Flow[None]:
        """Undo what failed at its end. Returns if somebody else had committed it before, and raises if not."""
        yield from self._undo()
        if not (yield from self._was_committed()):
            raise DefiniteFailure(failure.detail) from failure

    def _was_committed(self) -> Flow[bool]:
        """Ask elsewhere. A failed transaction answers nothing, and so does a lost connection, but it had a number."""
        try:
            fate = yield from Elsewhere(Query(self._statement("fate"), {"number": self._number}))
        except StoreFailure:
            return False
        return fate == [("committed",)]

    def commit(self) -> Flow[None]:
        """Commit. Raises `DefiniteFailure` if the server refused, `IndefiniteFailure` for anything else."""
        if self.is_finished:
            return
        try:
            if self._is_unenrolled and not self._has_failed:
                yield from self._enrol()  # Which also makes it durable.
            yield from self._finish()
        except IndefiniteFailure:
            self.is_spoilt = True
            raise
        except DefiniteFailure:
            yield from self._undo()
            raise
        self._is_inside = False

    def _finish(self) -> Flow[None]:
        tag = None if self._has_failed else (yield from self._say(Finish(), Stage.COMMITTING))
        # "ROLLBACK" is the answer of a server to which a statement of this transaction had failed.
        if self._has_failed or tag == "ROLLBACK":
            raise DefiniteFailure("a statement of the transaction had failed, so it was rolled back")
        self._require_replication()

    def roll_back(self) -> Flow[None]:
        """Undo everything that is not committed; a connection on which that fails is spoilt."""
        yield from self._undo()

    def _undo(self) -> Flow[None]:
        self._is_inside = False
        if self.is_spoilt:
            return
        try:
            yield from self._say(Undo(), Stage.INSIDE)
        except DefiniteFailure:  # Without a COMMIT nothing stays, whether or not the server heard this.
            self.is_spoilt = True

    def _statement(self, name: str) -> Statement:
        return self._home.statements[name]


def _lock_key(identity: object) -> int:
    assert isinstance(identity, bytes)
    return int.from_bytes(identity[:8], "big", signed=True)
