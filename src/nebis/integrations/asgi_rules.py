"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nebis.aio import AsyncNebis
from nebis.errors import NebisError
from nebis.flows.request import Request
from nebis.integrations.asgi import App, Passage, Receive, Scope, Send, guard
from nebis.integrations.asgi_request import begun, incoming, passage_of, prepared
from nebis.integrations.callee import outcome_of
from nebis.integrations.routetable import announced
from nebis.integrations.rules import ATTEMPT, Rule, rendered, rule

__all__ = ["ATTEMPT", "Protected", "rule"]


class Protected:
    """An ASGI application whose requests are claimed before it sees them, by the first rule that matches."""

    def __init__(self, app: App, *, rules: Sequence[Rule[AsyncNebis]]) -> None:
        self.app = app
        self.rules = tuple(rules)
        self._claiming = tuple([_Claiming(app, one) for one in self.rules])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in a task of our own if a rule is for it."""
        if scope["type"] == "lifespan":
            # A framework that has these rules as its middleware knows more than they do.
            with announced(scope.get("app", self)):
                await self.app(scope, receive, send)
            return
        if scope["type"] == "http":
            for claiming in self._claiming:
                if claiming.pattern.matches(scope["method"], scope["path"]):
                    await guard(claiming, scope, receive, send, claiming.protection)
                    return
        await self.app(scope, receive, send)


class _Claiming:
    """An application behind one rule; made once per rule, as a function for each request is many objects."""

    def __init__(self, app: App, chosen: Rule[AsyncNebis]) -> None:
        self.pattern = chosen.pattern
        self.protection = chosen.protection
        self._nebis = chosen.nebis
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        passage = passage_of(scope, self.protection)
        try:
            request = await self._asked(scope, passage)
            scope[ATTEMPT] = None if request is None else await begun(passage, self._nebis, request)
        except NebisError as error:
            passage.answer = passage.protected.refused(error)
        if passage.answer is not None:
            await passage.send_answer()
            return
        passage.is_own = True
        await self._app(scope, receive, send)

    async def _asked(self, scope: Scope, passage: Passage) -> Request | None:
        # Apart, so that what a request is read from is gone before the store is asked: whatever many waiting requests
        # hold is gone through by the garbage collector again and again.
        arrived = await incoming(scope, passage)
        tenant = self.protection.given_tenant(arrived.peer, arrived.headers)
        if tenant is None:
            tenant = await outcome_of(cast("Any", self.protection.tenant), scope)
        return await prepared(passage, self._nebis, arrived, tenant, rendered)
