"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack, cast

from nebis.aio import AsyncNebis
from nebis.core.record import EffectsMode
from nebis.http.exchange import Exchange
from nebis.http.pattern import Pattern
from nebis.integrations.asgi import App, Receive, Scope, Send, guard
from nebis.integrations.asgi_request import claimed, headers_of, incoming, passage_of, telling
from nebis.integrations.callee import outcome_of
from nebis.integrations.protection import Protection, Tenant
from nebis.integrations.routes import RouteOptions, protection

ATTEMPT = "nebis.attempt"
"""Where the application finds the attempt of a request, in its scope."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the requests of one pattern are protected."""

    pattern: Pattern
    nebis: AsyncNebis
    protection: Protection


def rule(
    nebis: AsyncNebis,
    pattern: str,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    **options: Unpack[RouteOptions],
) -> Rule:
    """Protect requests such as `POST /payments/*`. `tenant` gets the scope, once whatever authenticates has run.

    Validation runs inside, after the claim: what an endpoint refuses as invalid is withdrawn.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)
    return Rule(Pattern.parse(pattern), nebis, protected)


class Protected:
    """An ASGI application whose requests are claimed before it sees them, by the first rule that matches."""

    def __init__(self, app: App, *, rules: Sequence[Rule]) -> None:
        self._app = app
        self._rules = tuple(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in a task of our own if a rule is for it."""
        found = None
        if scope["type"] == "http":
            found = next((one for one in self._rules if one.pattern.matches(scope["method"], scope["path"])), None)
        if found is None:
            await self._app(scope, receive, send)
            return
        chosen = found

        async def claiming(scope: Scope, receive: Receive, send: Send) -> None:
            passage = passage_of(scope, chosen.protection)
            with telling(passage):
                arrived = await incoming(scope, passage)
                tenant = chosen.protection.given_tenant(arrived.peer, headers_of(scope))
                if tenant is None:
                    tenant = await outcome_of(cast("Any", chosen.protection.tenant), scope)
                scope[ATTEMPT] = await claimed(passage, chosen.nebis, arrived, tenant, rendered)
            if passage.answer is not None:
                await passage.send_answer()
                return
            passage.is_own = True
            await self._app(scope, receive, send)

        await guard(claiming, scope, receive, send, chosen.protection)


def rendered(value: Any) -> Exchange:
    """Make a stored answer of plain data that an application gives to `tx.finish`."""
    return Exchange(status=200, headers=(("content-type", "application/json"),), body=json.dumps(value).encode())
