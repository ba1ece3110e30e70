"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nebis.aio import AsyncNebis
from nebis.integrations.asgi import App, Receive, Scope, Send, guard
from nebis.integrations.asgi_request import claimed, incoming, passage_of, telling
from nebis.integrations.callee import outcome_of
from nebis.integrations.routetable import announced
from nebis.integrations.rules import ATTEMPT, Rule, matching, rendered, rule

__all__ = ["ATTEMPT", "Protected", "rule"]


class Protected:
    """An ASGI application whose requests are claimed before it sees them, by the first rule that matches."""

    def __init__(self, app: App, *, rules: Sequence[Rule[AsyncNebis]]) -> None:
        self.app = app
        self.rules = tuple(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in a task of our own if a rule is for it."""
        found = None
        if scope["type"] == "lifespan":
            # A framework that has these rules as its middleware knows more than they do.
            with announced(scope.get("app", self)):
                await self.app(scope, receive, send)
            return
        if scope["type"] == "http":
            found = matching(self.rules, scope["method"], scope["path"])
        if found is None:
            await self.app(scope, receive, send)
            return
        chosen = found

        async def claiming(scope: Scope, receive: Receive, send: Send) -> None:
            passage = passage_of(scope, chosen.protection)
            with telling(passage):
                arrived = await incoming(scope, passage)
                tenant = chosen.protection.given_tenant(arrived.peer, arrived.headers)
                if tenant is None:
                    tenant = await outcome_of(cast("Any", chosen.protection.tenant), scope)
                scope[ATTEMPT] = await claimed(passage, chosen.nebis, arrived, tenant, rendered)
            if passage.answer is not None:
                await passage.send_answer()
                return
            passage.is_own = True
            await self.app(scope, receive, send)

        await guard(claiming, scope, receive, send, chosen.protection)
