"""A joined transaction on PostgreSQL."""

from __future__ import annotations

from typing import Any, TypeVar

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row, Statement
from nebis.stores.sql.joining.keeper import Keep, OnDriver
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.failures import (
    Proof,
    Stage,
    Trouble,
    is_lost_replication,
    judge,
    leaves_connection_usable,
)
from nebis.stores.sql.postgres.location import Driver, Location
from nebis.stores.sql.postgres.settings import Settings

T = TypeVar("T")

_PART = "nebis_verb"
"""A savepoint around one store flow, so that a flow that fails leaves nothing behind."""

_READ_SO_FAR = "SELECT pg_current_xact_id_if_assigned() IS NULL, current_setting('transaction_isolation')"
_WHICH = "SELECT pg_current_xact_id_if_assigned()::text"

_WRITTEN_BEFORE = (
    "The transaction of this session wrote before Nebis could join it, and would commit or lose that together with the "
    "operation; commit or roll back before you hand the session in."
)
_OLD_SNAPSHOT = (
    "The session is in a transaction whose snapshot is older than the claim, so it cannot see it; commit or roll back "
    "before you hand the session in, or use READ COMMITTED."
)
_AUTOCOMMIT = (
    "The connection commits every statement by itself; hand in one whose isolation level is not AUTOCOMMIT, so that rows "
    "and outcome can be committed together."
)


class PostgresScript:
    """What is said to PostgreSQL inside a transaction that a library keeps."""

    def __init__(self, settings: Settings, *, database: str | None = None) -> None:
        """Take the store's settings, and the name of its database if it is known."""
        self._settings = settings
        self._database = database
        self._driver: Any = None
        self._raw: Any = None
        self._transaction_id = ""
        self._users_lock_timeout = ""
        self._is_begun = False
        self._is_spoilt = False
        self._is_unreplicated = False

    def hear(self, *, severity: str | None, sqlstate: str | None) -> None:
        """Take note of what the server says unasked."""
        if is_lost_replication(severity=severity, sqlstate=sqlstate):
            self._is_unreplicated = True

    def begin(self) -> Flow[None]:
        """Begin, or join what has only read so far; raise `MisuseError` where we could not keep our promise."""
        was_open = yield from Keep(_checked)
        try:
            if was_open:
                _require_fresh((yield from Keep(lambda keeper: keeper.ask(_READ_SO_FAR))))
            self._raw = yield from Keep(lambda keeper: keeper.begin())
            self._driver = driver_of(self._raw, self._settings)
            # By way of the library, because some begin at the server only with the first statement that they see.
            row = yield from Keep(lambda keeper: keeper.ask(self._opening()))
            self._transaction_id, self._users_lock_timeout, database, *_ = row
            self._require_suitable(database)
        except BaseException:
            # What the application had open before stays as it was.
            if not was_open:
                yield from Keep(lambda keeper: keeper.rollback())
            raise
        self._is_begun = True

    def _opening(self) -> str:
        """Return the first statement: its settings hold until the transaction ends, whoever ends it."""
        idle_ms = f"{self._settings.idle_in_transaction_seconds * 1000:.0f}"
        return (
            "SELECT pg_current_xact_id()::text, current_setting('lock_timeout'), current_database()::text, "
            # Whoever is stopped while it holds the record must lose it before its lease lapses.
            "CASE WHEN current_setting('idle_in_transaction_session_timeout')::interval "
            f"NOT BETWEEN '1 ms' AND '{idle_ms} ms'::interval "
            f"THEN set_config('idle_in_transaction_session_timeout', '{idle_ms}', true) END, "
            "CASE WHEN current_setting('synchronous_commit') = 'off' "
            "THEN set_config('synchronous_commit', 'on', true) END"
        )

    def _require_suitable(self, database: str) -> None:
        if self._driver.is_idle(self._raw):
            raise MisuseError(_AUTOCOMMIT)
        if self._database not in (None, database):
            raise MisuseError(
                f"The connection is on the database {database!r}, the store in {self._database!r}; hand in a "
                "connection to the store's own database."
            )

    def run(self, flow: Flow[T]) -> Flow[T]:
        """Perform a store flow inside the transaction."""
        yield from self._require_current()
        try:
            ask = next(flow)
            while True:
                try:
                    answer = yield from self._answer(ask)
                except Exception as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on.
                    ask = flow.throw(error)
                else:
                    ask = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def is_same(self) -> Flow[bool]:
        """Compare transactions: those of the library, and those of the server."""
        if (yield from Keep(lambda keeper: keeper.is_current() and keeper.has_failed())):
            return True  # Rolled back as a whole, which the next statement of ours will say.
        if not (yield from Keep(lambda keeper: keeper.is_current())):
            return False
        try:
            [(found,)] = yield from self._say(_fixed(_WHICH))
        except DefiniteFailure:
            # A statement of the application failed. The server has undone everything and waits for the rollback.
            return True
        return bool(found == self._transaction_id)

    def commit(self) -> Flow[None]:
        """Flush and commit in the library's way."""
        yield from self._require_current()
        try:
            yield from Keep(lambda keeper: keeper.flush())
        except Exception as error:
            raise DefiniteFailure(f"what the session held back was refused ({type(error).__name__})") from error
        self._is_unreplicated = False
        listening = self._driver.listen_to_warnings(self._raw, self)
        try:
            yield from Keep(lambda keeper: keeper.commit())
        except Exception as error:  # noqa: BLE001 - whatever it is, only a refusal by the server proves anything.
            raise (yield from self._judged(error)) from None
        except BaseException:
            self._is_spoilt = True
            raise
        finally:
            self._driver.stop_listening(self._raw, listening)
        self._is_begun = False
        if self._is_unreplicated:
            raise IndefiniteFailure("the server stopped waiting for its synchronous standby; a failover may lose this")

    def _judged(self, error: Exception) -> Flow[Exception]:
        refusal = yield from Keep(lambda keeper: keeper.refusal_of_commit(error))
        trouble = _unproven(error) if refusal is None else self._driver.describe(refusal)
        if trouble.proof is Proof.UNSENT:  # Of which statement is not known: the library sends more than COMMIT.
            trouble = _unproven(error)
        self._is_spoilt = not leaves_connection_usable(trouble)
        return judge(trouble, Stage.COMMITTING)

    def rollback(self) -> Flow[None]:
        """Roll back in the library's way, or throw the connection away."""
        if not self._is_begun:
            return
        self._is_begun = False
        if not self._is_spoilt:
            try:
                return (yield from Keep(lambda keeper: keeper.rollback()))
            except Exception:  # noqa: BLE001 - it can still be thrown away.
                pass
        yield from Keep(lambda keeper: keeper.discard())

    def _require_current(self) -> Flow[None]:
        """Stop before anything is sent on a connection that may be somebody else's by now."""
        if (yield from Keep(lambda keeper: keeper.has_failed() or not keeper.is_current())):
            raise DefiniteFailure("the transaction was ended or has failed inside its block")

    def _answer(self, ask: Ask[Any]) -> Flow[Any]:
        match ask:
            case Query() if ask.statement.name == "claim":
                return (yield from self._claim(ask))
            case Query():
                return (yield from self._say(_executing(ask)))
            case Begin():
                yield from self._say(_fixed(f"SAVEPOINT {_PART}"))
            case Commit():
                yield from self._say(_fixed(f"RELEASE {_PART}"))
            case Rollback():
                yield from self._say(_fixed(f"ROLLBACK TO {_PART}"))
                yield from self._say(_fixed(f"RELEASE {_PART}"))
            case _:
                raise AssertionError(f"a joined transaction cannot perform {type(ask).__name__}")

    def _claim(self, query: Query) -> Flow[list[Row]]:
        """Claim with our lock timeout: the only statement of ours that waits. The application's own comes back."""
        yield from self._say(_lock_timeout(f"{self._settings.lock_timeout_seconds * 1000:.0f}"))
        rows = yield from self._say(_executing(query))
        yield from self._say(_lock_timeout(self._users_lock_timeout))
        return rows

    def _say(self, execute: Execute) -> Flow[list[Row]]:
        try:
            rows: list[Row] = yield from OnDriver(lambda: self._driver.perform(self._raw, execute))
            return rows
        except Exception as error:  # noqa: BLE001 - a driver may raise anything.
            trouble = self._driver.describe(error)
            self._is_spoilt = self._is_spoilt or not leaves_connection_usable(trouble)
            # Not chained: the driver's own text may quote a row.
            raise judge(trouble, Stage.INSIDE) from None
        except BaseException:
            self._is_spoilt = True
            raise


def driver_of(raw: object, settings: Settings) -> Any:
    """Return the driver of a connection that a library opened, or raise `MisuseError`."""
    packages = {kind.__module__.partition(".")[0] for kind in type(raw).__mro__}
    # Each is imported here because the library that opened the connection has imported it already.
    if "psycopg" in packages:
        from psycopg import AsyncConnection  # noqa: PLC0415

        from nebis.stores.sql.postgres.psycopg_async import AsyncPsycopg  # noqa: PLC0415
        from nebis.stores.sql.postgres.psycopg_blocking import BlockingPsycopg  # noqa: PLC0415

        half = AsyncPsycopg if isinstance(raw, AsyncConnection) else BlockingPsycopg
        return half(Location.behind_connect(Driver.PSYCOPG), settings)
    if "asyncpg" in packages:
        from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg  # noqa: PLC0415

        return Asyncpg(Location.behind_connect(Driver.ASYNCPG), settings)
    if "psycopg2" in packages:
        from nebis.stores.sql.joining.psycopg2 import Psycopg2  # noqa: PLC0415

        return Psycopg2()
    raise MisuseError(f"Nebis cannot use the driver of {type(raw).__module__}; use psycopg, psycopg2 or asyncpg.")


def _checked(keeper: Any) -> bool:
    if keeper.dialect != "postgresql":
        raise MisuseError(
            f"The connection is on {keeper.dialect}, the store in PostgreSQL; hand in a connection to the store's own "
            "database."
        )
    return bool(keeper.is_open())


def _require_fresh(row: tuple[Any, ...]) -> None:
    has_only_read, isolation = row
    if not has_only_read:
        raise MisuseError(_WRITTEN_BEFORE)
    if isolation != "read committed":
        raise MisuseError(_OLD_SNAPSHOT)


def _unproven(error: Exception) -> Trouble:
    return Trouble(proof=Proof.NONE, detail=f"the library lost the commit ({type(error).__name__})")


def _fixed(text: str) -> Execute:
    return Execute(Statement(name="fixed", text=text, parameters=(), positional=text, pyformat=text))


def _lock_timeout(value: str) -> Execute:
    return _fixed(f"SELECT set_config('lock_timeout', '{value}', true)")


def _executing(query: Query) -> Execute:
    if query.members is None:
        return Execute(query.statement, query.shared)
    names = frozenset(name for name in query.statement.parameters if name not in query.shared)
    columns: dict[str, object] = {name: [member[name] for member in query.members] for name in names}
    return Execute(query.statement, {**query.shared, **columns}, names)
