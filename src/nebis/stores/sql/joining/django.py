"""Transactions that Django keeps, as a durable atomic block of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from nebis.errors import MisuseError
from nebis.stores.sql.joining.keeper import AsyncHands, Hands, Standing

_log = logging.getLogger("nebis.django")

_IN_BLOCK = (
    "The connection {alias!r} is already inside an atomic block, which Nebis could not commit alone; leave it before "
    "you hand the connection in (in tests: use TransactionTestCase)."
)
_ATOMIC_REQUESTS = (
    "The connection {alias!r} has ATOMIC_REQUESTS, so the whole view is one transaction, which would be committed only "
    "after Nebis has answered; put @transaction.non_atomic_requests({alias!r}) on the view, Nebis opens one inside it."
)
_NO_AUTOCOMMIT = (
    "The connection {alias!r} has autocommit switched off, so a transaction may be open already; hand in one with "
    "Django's default, AUTOCOMMIT = True."
)


class DjangoLibrary:
    """A connection of Django: `django.db.connection`, or one of `django.db.connections`."""

    def __init__(self, target: object) -> None:
        match target:
            case BaseDatabaseWrapper():
                self._alias: str = target.alias
            case ConnectionProxy():
                self._alias = target.__dict__["_alias"]
            case _:
                raise MisuseError(
                    f"{type(target).__name__} is no connection of Django; hand in django.db.connection, or one of "
                    "django.db.connections."
                )
        self._target = target

    def hands(self) -> Hands:
        """Return what blocking code uses it with: this thread's connection."""
        return Hands(DjangoKeeper(self._alias, self._target))

    def async_hands(self) -> AsyncHands:
        """Return what async views use it with: the connection of the thread that Django's own async methods use."""
        return AsyncHands(DjangoKeeper(self._alias, self._target), call=_there, call_driver=_there)


async def _there(act: Callable[[], Any]) -> Any:
    return await sync_to_async(act, thread_sensitive=True)()


class DjangoKeeper:
    """The connection that this thread has under an alias."""

    def __init__(self, alias: str, handle: object) -> None:
        self.handle = handle
        self._alias = alias
        self._block: Any = None
        self._raw: Any = None

    @property
    def _connection(self) -> Any:
        return connections[self._alias]

    @property
    def dialect(self) -> str:
        """Return Django's name for the database."""
        return str(self._connection.vendor)

    def is_open(self) -> bool:
        """Refuse every open transaction: Django commits each where its own block ends."""
        connection = self._connection
        if connection.in_atomic_block:
            text = _ATOMIC_REQUESTS if connection.settings_dict["ATOMIC_REQUESTS"] else _IN_BLOCK
            raise MisuseError(text.format(alias=self._alias))
        if not connection.get_autocommit():
            raise MisuseError(_NO_AUTOCOMMIT.format(alias=self._alias))
        return False

    def begin(self) -> Any:
        """Enter a durable block, and return the driver's own connection."""
        block = transaction.atomic(using=self._alias, durable=True)
        block.__enter__()
        self._block = block
        self._raw = self._connection.connection
        return self._raw

    def lend(self) -> Any:
        """Return the driver's own connection inside the atomic block that is open."""
        connection = self._connection
        if not connection.in_atomic_block or connection.needs_rollback:
            raise MisuseError(
                f"The connection {self._alias!r} is in no atomic block that can be committed; enter one first."
            )
        return connection.connection

    def ask(self, text: str) -> tuple[Any, ...]:
        """Send a statement without parameters and return its only row."""
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return tuple(cursor.fetchone())

    def standing(self) -> Standing:
        """Tell whether our block is still the outermost one, on the same connection."""
        connection = self._connection
        if connection.atomic_blocks[:1] != [self._block]:
            return Standing.ENDED
        # An inner block was left by an exception, somebody asked for a rollback, or closed the connection.
        is_broken = connection.needs_rollback or connection.closed_in_transaction
        return Standing.FAILED if is_broken or connection.connection is not self._raw else Standing.CURRENT

    def flush(self) -> None:
        """Send nothing: Django holds nothing back."""

    def commit(self) -> None:
        """Leave the block, which runs the hooks of `on_commit` too."""
        block, self._block = self._block, None
        has_hooks = bool(self._connection.run_on_commit)
        try:
            block.__exit__(None, None, None)
        except Exception:
            if has_hooks:
                _log.exception("An atomic block or a hook of its commit failed; asking the store what became of it.")
                raise _MaybeHook from None
            raise

    def rollback(self) -> None:
        """Leave the block as if by an exception."""
        block, self._block = self._block, None
        if block is not None:
            error = _Undone()
            block.__exit__(_Undone, error, None)

    def discard(self) -> None:
        """Leave the block and close; the next use connects anew."""
        with suppress(Error):
            self.rollback()
        self._connection.close()

    def refusal_of_commit(self, error: Exception) -> Exception | None:
        """Return the driver's error, unless it may be that of a hook, which runs after the COMMIT."""
        cause = error.__cause__
        return cause if isinstance(error, Error) and isinstance(cause, Exception) else None


class _Undone(Exception):
    """What a block is told when it has to be rolled back."""


class _MaybeHook(Exception):
    """A failure of the COMMIT, or of what Django runs after it."""
