"""A connection to PostgreSQL that a library keeps, as a transaction uses one of a driver."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow
from nebis.ports.store import AsyncTransaction, BlockingTransaction, DefiniteFailure
from nebis.stores.sql.joining.keeper import AsyncHands, Hands, Keep, Keeper, Library, OnDriver, Standing
from nebis.stores.sql.postgres import transactions_async, transactions_blocking
from nebis.stores.sql.postgres.conversation import Conversation, Execute
from nebis.stores.sql.postgres.failures import Proof, Trouble
from nebis.stores.sql.postgres.location import Driver, Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions import TELL_WHETHER_SAME
from nebis.stores.sql.postgres.transactions_asks import Finish, Start, Undo

_READ_SO_FAR = "SELECT pg_current_xact_id_if_assigned() IS NULL"


def joined(library: Library, shared: transactions_blocking.Belongings) -> BlockingTransaction:
    """Make a transaction for blocking code; raise `MisuseError` for a target of asyncio."""
    connection: Any = KeptConnection(library.hands(), shared.settings)
    return transactions_blocking.PostgresTransaction(shared, connection, connection)


def joined_async(library: Library, shared: transactions_async.Belongings) -> AsyncTransaction:
    """Make a transaction for asyncio; raise `MisuseError` for a target that would block the loop."""
    connection: Any = AsyncKeptConnection(library.async_hands(), shared.settings)
    return transactions_async.AsyncPostgresTransaction(shared, connection, connection)


def lent(settings: Settings) -> Flow[tuple[Any, Any]]:
    """Return the driver's own connection and its driver, inside the transaction that the application has open."""
    yield from Keep(_require_postgres)
    raw = yield from Keep(lambda keeper: keeper.lend())
    driver = driver_of(raw, settings)
    is_automatic = getattr(raw, "autocommit", None)
    if driver.is_idle(raw) if is_automatic is None else is_automatic:
        raise MisuseError("The connection commits every statement by itself; begin a transaction first.")
    return raw, driver


class _Unsendable(Exception):
    """A statement that was not sent, because its transaction is not the current one any more."""


class _NotFlushed(Exception):
    """A commit that was not sent, because something before it was refused."""


class _NotCommitted(Exception):
    """A commit that the library did not confirm."""

    def __init__(self, error: Exception, refusal: Exception | None) -> None:
        self.refusal = refusal
        super().__init__(type(error).__name__)


class _Kept:
    """What both worlds share: driver and place of one transaction at once, with its work written as flows."""

    is_ours = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._was_open = False
        self._driver: Any = None
        self._raw: Any = None

    def is_open(self, _: Any) -> bool:
        """Say whether the application had a transaction open, which has only read so far."""
        return self._was_open

    def describe(self, error: Exception) -> Trouble:
        """Describe what was raised, by the library or by the driver beneath it."""
        match error:
            case _Unsendable():
                return Trouble(proof=Proof.UNSENT, detail="the transaction failed or was ended inside its block")
            case _NotFlushed():
                return Trouble(proof=Proof.UNSENT, detail=f"what the session held back was refused ({error})")
            case _NotCommitted(refusal=Exception() as refusal):
                trouble: Trouble = self._driver.describe(refusal)
                # Of which statement is not known, since a library sends more than COMMIT.
                return _unproven(error) if trouble.proof is Proof.UNSENT else trouble
            case _NotCommitted():
                return _unproven(error)
            case _:
                found: Trouble = self._driver.describe(error)
                return found

    def listen_to_warnings(self, _: Any, conversation: Conversation) -> Any:
        """Let the conversation hear what the server says unasked."""
        return self._driver.listen_to_warnings(self._raw, conversation)

    def stop_listening(self, _: Any, listening: Any) -> None:
        """Undo `listen_to_warnings`."""
        self._driver.stop_listening(self._raw, listening)

    def _begin(self) -> Flow[Any]:
        """Begin in the library's way; what the application had open stays as it was if we cannot join it."""
        try:
            self._was_open = yield from Keep(_checked)
            yield from self._join_or_leave()
        except MisuseError:
            raise
        except Exception as error:
            raise DefiniteFailure(f"the library gave no connection ({type(error).__name__})") from error
        return (yield from Keep(lambda keeper: keeper.handle))

    def _join_or_leave(self) -> Flow[None]:
        try:
            if self._was_open:
                yield from self._require_unwritten()
            self._raw = yield from Keep(lambda keeper: keeper.begin())
            self._driver = driver_of(self._raw, self._settings)
            yield from self._require_transaction()
        except BaseException:
            if not self._was_open:
                with suppress(Exception):
                    yield from Keep(lambda keeper: keeper.rollback())
            raise

    def _require_unwritten(self) -> Flow[None]:
        """Refuse what was written before: a replay would take it back, and it is none of the operation's."""
        (has_only_read,) = yield from Keep(lambda keeper: keeper.ask(_READ_SO_FAR))
        if not has_only_read:
            raise MisuseError(
                "The session has written in its transaction already, and a replay would roll that back; commit or "
                "roll back before you hand it in."
            )

    def _require_transaction(self) -> Flow[None]:
        is_automatic = getattr(self._raw, "autocommit", None)
        if is_automatic is None:
            # A transaction that SQLAlchemy opens for asyncpg begins with the first statement that it sees.
            yield from Keep(lambda keeper: keeper.ask("SELECT 1"))
            is_automatic = self._driver.is_idle(self._raw)
        if is_automatic:
            raise MisuseError(
                "The connection commits every statement by itself; hand in one whose isolation level is not "
                "AUTOCOMMIT, so that rows and outcome can be committed together."
            )

    def _do(self, ask: Ask[Any]) -> Flow[Any]:
        match ask:
            case Start():
                return None  # Begun when it was taken.
            case Finish():
                return (yield from self._commit())
            case Undo():
                return (yield from Keep(lambda keeper: keeper.rollback()))
            case _:
                return (yield from self._say(ask))

    def _say(self, ask: Ask[Any]) -> Flow[Any]:
        standing = yield from Keep(lambda keeper: keeper.standing())
        if standing is Standing.CURRENT:
            return (yield from OnDriver(lambda: self._driver.perform(self._raw, ask)))
        if standing is Standing.ENDED and isinstance(ask, Execute) and ask.statement.name in TELL_WHETHER_SAME:
            return [(False,)]
        raise _Unsendable

    def _commit(self) -> Flow[None]:
        try:
            yield from Keep(lambda keeper: keeper.flush())
        except Exception as error:
            raise _NotFlushed(type(error).__name__) from error
        try:
            yield from Keep(lambda keeper: keeper.commit())
        except Exception as error:
            raise _NotCommitted(error, (yield from _refusal(error))) from error

    def _discard(self) -> Flow[None]:
        with suppress(Exception):  # It is broken already; what counts is that nobody else gets it.
            yield from Keep(lambda keeper: keeper.discard())


class KeptConnection(_Kept):
    """A connection of blocking code."""

    def __init__(self, hands: Hands, settings: Settings) -> None:
        super().__init__(settings)
        self._hands = hands

    def take(self) -> Any:
        """Begin, and return what the application writes with."""
        return self._hands.do(self._begin())

    def perform(self, _: Any, ask: Ask[Any]) -> Any:
        """Do one ask of a transaction."""
        return self._hands.do(self._do(ask))

    def give_back(self, _: Any, *, is_spoilt: bool) -> None:
        """Leave it to the library."""
        if is_spoilt:
            self._hands.do(self._discard())


class AsyncKeptConnection(_Kept):
    """A connection of asyncio."""

    def __init__(self, hands: AsyncHands, settings: Settings) -> None:
        super().__init__(settings)
        self._hands = hands

    async def take(self) -> Any:
        """Begin, and return what the application writes with."""
        return await self._hands.do(self._begin())

    async def perform(self, _: Any, ask: Ask[Any]) -> Any:
        """Do one ask of a transaction."""
        return await self._hands.do(self._do(ask))

    async def give_back(self, _: Any, *, is_spoilt: bool) -> None:
        """Leave it to the library."""
        if is_spoilt:
            await self._hands.do(self._discard())


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


def _checked(keeper: Keeper) -> bool:
    _require_postgres(keeper)
    return keeper.is_open()


def _require_postgres(keeper: Keeper) -> None:
    if keeper.dialect != "postgresql":
        raise MisuseError(
            f"The connection is on {keeper.dialect}, the store in PostgreSQL; hand in a connection to the store's own "
            "database."
        )


def _refusal(error: Exception) -> Flow[Exception | None]:
    return (yield from Keep(lambda keeper: keeper.refusal_of_commit(error)))


def _unproven(error: Exception) -> Trouble:
    return Trouble(proof=Proof.NONE, detail=f"the library lost the commit ({error})")
