"""What an endpoint's end says about what happened: one table of exceptions and statuses for all frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nebis.errors import InDoubt, Rejected, Retryable
from nebis.flows.request import WITHDRAWING, Disposition, classify
from nebis.http.exchange import Exchange

# The request was not one that this service takes: nothing is recorded, so that the key stays usable (O4).
WITHDRAWN: Final = frozenset(
    {400, 401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 425, 426, 428, 429, 431}
)


class Answered(Exception):
    """An endpoint's own answer that is no success, on its way through the engine; never raised to an application."""

    def __init__(self, exchange: Exchange, cause: Exception | None = None, *, is_own: bool = True) -> None:
        self.exchange = exchange
        self.cause = cause
        self.is_own = is_own
        """False if something after the endpoint answered in its place: a dependency that failed to commit."""
        super().__init__(f"answered with status {exchange.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Which refusals of an endpoint are its last word under a key."""

    statuses: frozenset[int] | None = None
    """None is every 4xx that is not about the request itself, its caller or the moment."""
    errors: tuple[type[Exception], ...] = ()

    def disposition(self, error: Exception) -> Disposition:
        """Say what an exception or an unsuccessful answer means for the key."""
        cause = error.cause if isinstance(error, Answered) else error
        if isinstance(cause, (Rejected, Retryable, InDoubt, *WITHDRAWING)):
            return classify(cause)
        if isinstance(cause, self.errors):
            return Disposition.REJECT
        if not isinstance(error, Answered) or not error.is_own:
            return Disposition.BY_MODE
        return self._of_status(error.exchange.status)

    def _of_status(self, status: int) -> Disposition:
        if not 400 <= status <= 499:
            return Disposition.BY_MODE
        binds = status not in WITHDRAWN if self.statuses is None else status in self.statuses
        if binds:
            return Disposition.REJECT
        return Disposition.WITHDRAW if status in WITHDRAWN else Disposition.RETRY


def binding(choice: Iterable[int | type[Exception]] | None) -> Binding:
    """Read which refusals bind: statuses, exceptions, or both; None is the usual ones."""
    if choice is None:
        return Binding()
    chosen = tuple(choice)
    statuses = frozenset(one for one in chosen if isinstance(one, int))
    errors = tuple(one for one in chosen if isinstance(one, type))
    return Binding(statuses=statuses, errors=errors)
