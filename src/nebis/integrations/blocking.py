"""The half that frameworks with blocking views share: claim, run and settle on the thread of the request.

A thread is not cancelled when its client hangs up, and an answer can be rendered right where the endpoint returns, so
that nothing has to go around the route.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from nebis.errors import ConfigError, NebisError
from nebis.flows.request import Ending
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs
from nebis.http.problem import problem
from nebis.http.status import operation_id_of, status_view
from nebis.http.wire import Wire
from nebis.integrations.bound import Bound
from nebis.integrations.protection import Incoming, Protection
from nebis.integrations.tokens import issued
from nebis.ports.asks import Raised, Returned
from nebis.sync import Attempt, Nebis, OpenAttempt, Operation

Live = tuple[Exchange, Exception | None]
"""What the framework rendered for an attempt, and the exception it was made of, if it was."""


class Held:
    """A key that this request holds, from the claim until how it ended is stored."""

    def __init__(
        self, protection: Protection, opened: OpenAttempt, *, tenant: str, render: Callable[[Any], Exchange]
    ) -> None:
        self._protection = protection
        self._opened = opened
        self._tenant = tenant
        self._render = render

    @property
    def attempt(self) -> Attempt:
        """Return the attempt, for the endpoint that wants it."""
        return self._opened.attempt

    def run(self, endpoint: Callable[[], Live], *, unseen: Callable[[Exception], None]) -> Exchange:
        """Run an endpoint, store how it ended, and return what its caller is told.

        Raises what the endpoint raised where there is nothing else to tell. An exception in whose place a problem is
        told is handed to `unseen`, so that it still reaches whoever watches for errors.
        """
        try:
            live, handled = endpoint()
        except Exception as error:  # noqa: BLE001 - whatever an endpoint raises says how it ended.
            answer = self._settle(Raised(error))
            if not isinstance(error, NebisError):
                unseen(error)
            return answer
        except BaseException:
            # Not released: what was interrupted may have happened. The lease lapses and recovery decides (A5).
            self._opened.abandon()
            raise
        return self._settle(self._protection.ended(live, error=handled), live)

    def _settle(self, end: Returned[Any] | Raised, live: Exchange | None = None) -> Exchange:
        try:
            ending = self._opened.settle(end)
        except NebisError as error:
            return self._protection.refused(error)
        return told(self._protection, ending, tenant=self._tenant, render=self._render, live=live)


def claim(
    protection: Protection, nebis: Nebis, incoming: Incoming, tenant: object, render: Callable[[Any], Exchange]
) -> Held | Exchange | None:
    """Claim for an endpoint. An exchange is the answer in place of running it; None says that it may run without a key.

    Raises a `NebisError`, to be told by `refused`.
    """
    _, secrets = nebis.opened()
    request = protection.prepare(secrets, incoming, tenant, render=render)
    if request is None:
        return None
    begun = nebis.begin(request)
    if isinstance(begun, OpenAttempt):
        return Held(protection, begun, tenant=str(tenant), render=render)
    return told(protection, begun, tenant=str(tenant), render=render)


def told(
    protection: Protection,
    ending: Ending,
    *,
    tenant: str,
    render: Callable[[Any], Exchange],
    live: Exchange | None = None,
) -> Exchange:
    """Say what the caller gets, rebuilding an answer that is not stored."""
    answer = protection.answer(ending, tenant=tenant, live=live)
    if isinstance(answer, Exchange):
        return answer
    assert protection.reconstruct is not None
    try:
        return protection.replayed(render(protection.reconstruct.rebuild(answer)))
    except NebisError as error:
        return protection.refused(error)


def executed(route: Bound, operation: Operation[Any, Any], incoming: Incoming, tenant: object) -> Exchange:
    """Call the operation that a route is bound to, and render its result."""
    call = route.call(incoming, tenant)
    return route.answer(
        operation.execute(key=call.key, tenant=call.tenant, command=call.command, deadline=call.deadline)
    )


def read_status(nebis: Nebis, operation_id: str, tenant: object, wire: Wire | None = None) -> Exchange:
    """Look an operation up for a tenant. What is unknown and what is another's are looked up and told alike (SEC07)."""
    try:
        return status_view(nebis.find(operation_id_of(operation_id)), tenant=str(tenant or ""))
    except NebisError as error:
        rendered = problem(error, wire or Wire())
        if rendered is None:
            raise
        return rendered


def issue_token(
    nebis: Nebis,
    body: bytes,
    headers: HeaderPairs,
    tenant: object,
    *,
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Exchange:
    """Issue a key to a tenant, for the operation that it names."""
    _, secrets = nebis.opened()
    return issued(nebis, secrets, body, headers, tenant, lifetime=lifetime, wire=wire)


def require_blocking(given: object, kind: type, name: str) -> None:
    """Refuse what belongs to the asyncio façade: nobody would await it here."""
    if not isinstance(given, kind):
        raise ConfigError([f"endpoint {name!r} is called on a thread; protect it with Nebis in place of AsyncNebis"])
