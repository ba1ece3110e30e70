"""PostgreSQL through psycopg2, as far as a joined transaction needs it: many applications still have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

import psycopg2
from psycopg2 import extensions

from nebis.flow import Ask
from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres.conversation import Control, Execute
from nebis.stores.sql.postgres.failures import Proof, Trouble, server_trouble

_UUID_TYPE = 2950
# Of a notice psycopg2 keeps only the text, whose first word the server translates. What is certainly less than a
# warning is let pass; everything else could be the warning that a commit is not replicated (F017).
_HARMLESS = ("NOTICE:", "INFO:", "LOG:", "DEBUG:")


class Ear(Protocol):
    """Whoever wants to know what the server says unasked."""

    def hear(self, *, severity: str | None, sqlstate: str | None) -> None:
        """Take note of it."""
        ...


class Psycopg2:
    """psycopg2, as a joined transaction uses it."""

    def perform(self, connection: Any, ask: Ask[Any]) -> Any:
        """Do one ask of a conversation."""
        with connection.cursor(cursor_factory=extensions.cursor) as cursor:  # Not with what the application prefers.
            match ask:
                case Execute():
                    return _rows(cursor, ask)
                case Control():
                    cursor.execute(ask.text)
                    return cursor.statusmessage
                case _:
                    raise TypeError(f"psycopg2 cannot perform {type(ask).__name__}")

    def describe(self, error: Exception) -> Trouble:
        """Describe what `perform` raised."""
        if isinstance(error, psycopg2.Error) and error.pgcode is not None:
            return server_trouble(
                sqlstate=error.pgcode,
                severity=error.diag.severity_nonlocalized,
                name=type(error).__name__,
                message=error.diag.message_primary,
                constraint=error.diag.constraint_name,
            )
        # psycopg2 raises the same classes for what was never sent and for what was lost.
        return Trouble(proof=Proof.NONE, detail=f"psycopg2 lost the conversation ({type(error).__name__})")

    def listen_to_warnings(self, connection: Any, ear: Ear) -> Any:
        """Let the ear hear every notice before the application can read it."""
        users, connection.notices = connection.notices, _Notices(connection.notices, ear)
        return users

    def stop_listening(self, connection: Any, listening: Any) -> None:
        """Undo `listen_to_warnings`."""
        connection.notices = listening


class _Notices:
    """What psycopg2 appends each notice to, in place of the application's own list."""

    def __init__(self, users: Any, ear: Ear) -> None:
        self._users = users
        self._ear = ear

    def append(self, notice: str) -> None:
        """Pass a notice on to both."""
        self._users.append(notice)
        if not notice.startswith(_HARMLESS):
            self._ear.hear(severity="WARNING", sqlstate="01000")


def _rows(cursor: Any, ask: Execute) -> list[Row]:
    """Send one statement and return its rows, with the types that the other drivers give them."""
    if ask.values:
        cursor.execute(ask.statement.pyformat, _bindable(ask.values))
    else:
        cursor.execute(ask.statement.text)
    if cursor.description is None:
        return []
    uuids = {index for index, column in enumerate(cursor.description) if column.type_code == _UUID_TYPE}
    return [tuple(_read(value, is_uuid=index in uuids) for index, value in enumerate(row)) for row in cursor.fetchall()]


def _bindable(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _bound(value) for name, value in values.items()}


def _bound(value: object) -> object:
    if isinstance(value, list):
        return [_bound(member) for member in value]
    # Its type is in the statement, and an adapter for UUID is registered only by those who want one.
    return str(value) if isinstance(value, UUID) else value


def _read(value: Any, *, is_uuid: bool) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    return UUID(value) if is_uuid and isinstance(value, str) else value
