"""An operation bound to a route: the endpoint makes its command, a renderer makes the answer of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from nebis.answering import Execution
from nebis.deadline import Deadline
from nebis.declaration import Declaration
from nebis.errors import ConfigError, NebisError, Rejected, TenantMissing
from nebis.http.exchange import Exchange
from nebis.http.options import BodyKey, BusinessKey, KeyRule, OptionalKey, RequiredKey
from nebis.http.problem import problem
from nebis.http.wire import Wire
from nebis.integrations.protection import Admission, Incoming, Tenant
from nebis.integrations.routes import faults_of_choices, faults_of_issued
from nebis.keys import uuid4_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operation, as its façade takes it."""

    key: str
    tenant: str
    command: Any
    deadline: Deadline | None = None


class BoundOptions(TypedDict, total=False):
    """What may be chosen where an operation is bound to a route."""

    key: KeyRule
    wire: Wire
    status: int
    """Of the answer that is the result as JSON; 200 by default."""
    rejected_status: int
    """Of a rejection; 422 by default."""
    render: Callable[[Any], Exchange]
    """Makes another answer of a result. Without the request: a replay must get the same bytes."""
    render_rejected: Callable[[Rejected], Exchange]
    """Makes another answer of a rejection, alike: a status for each reason, the API's own codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(Admission):
    """How an operation is called over HTTP. Its result is stored, and rendered anew for each caller."""

    declaration: Declaration[Any, Any]
    render: Callable[[Any], Exchange]
    render_rejected: Callable[[Rejected], Exchange]
    status: int = 200
    rejected_status: int = 422
    """What is documented; a renderer may choose others."""

    def call(self, incoming: Incoming, tenant: object) -> Call:
        """Read the call that a request asks for, or raise a `RequestError`."""
        admitted = self.admit(incoming, tenant)
        if admitted is None:
            if not isinstance(tenant, str) or not tenant:
                raise TenantMissing
            # Nobody can repeat a call whose key only we know: it runs like any other, once.
            return Call(key=uuid4_key(), tenant=tenant, command=incoming.command)
        key, command, deadline = admitted
        assert isinstance(tenant, str)  # Nobody else is admitted.
        return Call(key=key, tenant=tenant, command=command, deadline=deadline)

    def answer(self, execution: Execution[Any]) -> Exchange:
        """Render what the operation returned, now or then."""
        return self._told(self.render(execution.result), is_replay=execution.is_replay)

    def refused(self, error: NebisError) -> Exchange:
        """Render an error as a problem, a rejection as this route does."""
        if not isinstance(error, Rejected):
            return Admission.refused(self, error)
        return self._told(self.render_rejected(error), is_replay=error.is_replay)

    def _told(self, exchange: Exchange, *, is_replay: bool) -> Exchange:
        if not any(name.lower() == "cache-control" for name, _ in exchange.headers):
            exchange = exchange.with_headers(("cache-control", "no-store"))
        return self.replayed(exchange) if is_replay else exchange


def bound(declaration: Declaration[Any, Any], *, tenant: Tenant | None, **options: Unpack[BoundOptions]) -> Bound:
    """Check how an operation is bound to a route, and report all faults at once."""
    key, wire = options.get("key", RequiredKey()), options.get("wire", Wire())
    status, rejected_status = options.get("status", 200), options.get("rejected_status", 422)
    faults = [*wire.faults(), *faults_of_choices(key, tenant)]
    faults += faults_of_issued(declaration.policy, key)
    if not 200 <= status <= 299 or not 400 <= rejected_status <= 499:
        faults.append("status is a 2xx and rejected_status a 4xx; choose such numbers")
    if faults or tenant is None:
        raise ConfigError([f"route of {declaration.name!r}: {fault}" for fault in faults])

    def as_json(result: Any) -> Exchange:
        body = b"" if status == 204 else declaration.result_codec.encode(result)
        return Exchange(status=status, headers=(("content-type", "application/json"),), body=body)

    def as_problem(rejection: Rejected) -> Exchange:
        rendered = problem(rejection, wire, status=rejected_status)
        assert rendered is not None  # A rejection is in the table.
        return rendered

    assert isinstance(key, RequiredKey | OptionalKey | BodyKey | BusinessKey)  # Otherwise it was a fault.
    return Bound(
        subject=declaration,
        declaration=declaration,
        tenant=tenant,
        key=key,
        wire=wire,
        render=options.get("render", as_json),
        render_rejected=options.get("render_rejected", as_problem),
        status=status,
        rejected_status=rejected_status,
    )
