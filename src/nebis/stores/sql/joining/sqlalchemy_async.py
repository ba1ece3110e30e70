"""Transactions that SQLAlchemy keeps for asyncio. Apart from the rest, since it can be imported only with greenlet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from nebis.errors import MisuseError
from nebis.stores.sql.joining.keeper import AsyncHands, Call, Hands
from nebis.stores.sql.joining.sqlalchemy import ConnectionKeeper, SessionKeeper, unknown


class AsyncSqlalchemyLibrary:
    """A connection or session of SQLAlchemy for asyncio: its blocking half is used where SQLAlchemy lets it block."""

    def __init__(self, target: object) -> None:
        self._target = target() if isinstance(target, async_scoped_session) else target

    def hands(self) -> Hands:
        """Refuse: blocking code cannot wait for it."""
        raise MisuseError(f"{type(self._target).__name__} belongs to asyncio; declare the operation on AsyncNebis.")

    def async_hands(self) -> AsyncHands:
        """Return what asyncio uses it with."""
        match self._target:
            case AsyncSession():
                session_keeper = SessionKeeper(self._target.sync_session, self._target)
                return AsyncHands(session_keeper, call=_runner(self._target))
            case AsyncConnection():
                if self._target.sync_connection is None:
                    raise MisuseError("The AsyncConnection is not open yet; enter it with `async with` first.")
                connection_keeper = ConnectionKeeper(self._target.sync_connection, self._target)
                return AsyncHands(connection_keeper, call=_runner(self._target))
            case _:
                raise unknown(self._target, "AsyncConnection or AsyncSession")


def _runner(target: AsyncConnection | AsyncSession) -> Call:
    async def run(act: Callable[[], Any]) -> Any:
        return await target.run_sync(lambda _: act())

    return run
