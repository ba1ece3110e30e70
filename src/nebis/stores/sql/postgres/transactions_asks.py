"""What a transaction of the application asks of its driver, beside statements."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.flow import Ask
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.postgres.conversation import Execute


@dataclass(frozen=True, slots=True)
class Start(Ask[None]):
    """Start a transaction, unless one is open or the connection starts one by itself."""

    is_ours: bool


@dataclass(frozen=True, slots=True)
class Finish(Ask[str | None]):
    """Commit; return the server's command tag, or None where the driver hides it."""


@dataclass(frozen=True, slots=True)
class FinishWith(Ask[Exception | None]):
    """Say one more thing and commit, in one trip; return what was raised if COMMIT was not sent, or skipped."""

    last: Execute


@dataclass(frozen=True, slots=True)
class Undo(Ask[None]):
    """Roll back whatever is open."""


@dataclass(frozen=True, slots=True)
class Elsewhere(Ask[list[Row]]):
    """Run one statement outside the transaction, on another connection to the store."""

    query: Query
