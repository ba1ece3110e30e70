"""What the blocking and the asyncio half of psycopg share: everything but the waiting."""

from __future__ import annotations

import math
import select
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from nebis.stores.sql.asks import Statement
from nebis.stores.sql.postgres import psycopg_arrays
from nebis.stores.sql.postgres.conversation import Conversation, Execute
from nebis.stores.sql.postgres.failures import Unreachable
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.reaching import explain, timed_out, unreadable
from nebis.stores.sql.postgres.settings import Settings

AnyConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
NoticeHandler: TypeAlias = Callable[[psycopg.errors.Diagnostic], None]

# All integers travel as bigint. By default their type depends on their size, and with it the prepared statement.
_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
psycopg_arrays.teach(_ADAPTERS)


def connect_arguments(location: Location, settings: Settings) -> dict[str, Any]:
    """Return the arguments of a connection of our own; raise `Unreachable` for a URL that libpq cannot read."""
    try:
        parameters: dict[str, Any] = dict(conninfo_to_dict(location.url))
    except psycopg.ProgrammingError:
        raise unreadable() from None
    probe_seconds = max(1, round(settings.silence_seconds / 3))
    defaults = {
        "fallback_application_name": "nebis",
        "connect_timeout": math.ceil(settings.connect_timeout_seconds),
        "tcp_user_timeout": round(settings.silence_seconds * 1000),
        "keepalives_idle": probe_seconds,
        "keepalives_interval": probe_seconds,
        "keepalives_count": 2,
    }
    if "," in str(parameters.get("host", "")):
        defaults["target_session_attrs"] = "read-write"
    if not settings.pooler:  # A pooler refuses start-up options that it does not know.
        pins = " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.pins().items())
        parameters["options"] = f"{parameters.get('options', '')} {pins}".strip()
    return {
        **defaults,
        **parameters,
        "autocommit": True,
        "prepare_threshold": None if settings.pooler else 5,
        "context": _ADAPTERS,
    }


def unprepared(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the same for a connection on which we prepare for ourselves.

    What psycopg prepares by itself, it makes the server forget again, and ours with it.
    """
    return {**arguments, "prepare_threshold": None}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def explain_refusal(location: Location, settings: Settings, error: psycopg.Error) -> Unreachable:
    """Say why a connection could not be opened."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return timed_out(location, settings.connect_timeout_seconds)
    return explain(location, sqlstate=error.sqlstate, message=str(error))


def is_idle(connection: AnyConnection) -> bool:
    """Say whether the connection is open, outside any transaction and with no unread answer (F023, F024).

    An idle server says nothing: whatever waits on the socket is its farewell, or an answer that was somebody else's.
    """
    if not is_reusable(connection):
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def is_reusable(connection: AnyConnection) -> bool:
    """Say whether the connection is open and outside any transaction, as far as is known here."""
    # Of a connection that is closed or broken this is unknown.
    return connection.pgconn.transaction_status == TransactionStatus.IDLE


def cut(connection: AnyConnection) -> None:
    """End a connection at once. Not by `close()`, which a pool may turn into "give back"."""
    connection.pgconn.finish()


def hear_notices(connection: AnyConnection, conversation: Conversation) -> NoticeHandler:
    """Let a conversation hear the server's notices; return the handler, to be removed in the end."""

    def handler(notice: psycopg.errors.Diagnostic) -> None:
        conversation.hear(severity=notice.severity_nonlocalized, sqlstate=notice.sqlstate)

    connection.add_notice_handler(handler)
    return handler


def render(ask: Execute) -> str:
    """Return the text of a statement in psycopg's own notation."""
    if not ask.values:
        return ask.statement.text
    return _render_arrays(ask.statement, ask.arrays)


def bound(ask: Execute, connection: AnyConnection) -> Mapping[str, object] | None:
    """Return the values of a statement as this connection sends them fastest."""
    if ask.arrays and psycopg_arrays.is_taught(connection):
        return psycopg_arrays.pack_arrays(ask.statement, ask.values, ask.arrays)
    return ask.values or None


@lru_cache(maxsize=256)
def _render_arrays(statement: Statement, arrays: frozenset[str]) -> str:
    # Left to itself psycopg writes arrays as text, in which bytes are twice as long.
    text = statement.pyformat
    for name in arrays:
        text = text.replace(f"%({name})s", f"%({name})b")
    return text
