"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable

from nebis.aio import AsyncNebis
from nebis.errors import NebisError
from nebis.integrations.asgi import App, Receive, Scope, Send, guard
from nebis.integrations.asgi_request import arrived, begun, given_tenant, passage_of
from nebis.integrations.routetable import announced
from nebis.integrations.rules import ATTEMPT, Matching, Rule, rendered, rule

__all__ = ["ATTEMPT", "Protected", "rule"]


class Protected:
    """An ASGI application whose requests are claimed before it sees them, by the first rule that matches."""

    def __init__(self, app: App, *, rules: Sequence[Rule[AsyncNebis]]) -> None:
        self.app = app
        self.rules = tuple(rules)
        self._matching = Matching([_Claiming(app, one) for one in self.rules]).first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in a task of our own if a rule is for it."""
        if scope["type"] == "lifespan":
            # A framework that has these rules as its middleware knows more than they do.
            with announced(scope.get("app", self)):
                await self.app(scope, receive, send)
            return
        found = self._matching(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self.app(scope, receive, send)
        else:
            await guard(found, scope, receive, send, found.protection)


class _Claiming:
    """An application behind one rule; made once per rule, as a function for each request is many objects."""

    def __init__(self, app: App, chosen: Rule[AsyncNebis]) -> None:
        self.pattern = chosen.pattern
        self.protection = chosen.protection
        self._tenant = chosen.protection.tenant if callable(chosen.protection.tenant) else None
        self._nebis = chosen.nebis
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        passage = passage_of(scope, self.protection)
        try:
            if passage.body is None:
                await passage.whole()
            tenant = given_tenant(scope, self.protection) if self._tenant is None else self._tenant(scope)
            # Most are text, for which it would take long to find that nobody has to wait for it.
            if type(tenant) is not str and isawaitable(tenant):
                tenant = await tenant
            _, secrets = self._nebis.opened_here() or await self._nebis.opened()
            passage.render = rendered
            passage.tenant = str(tenant)
            # Not kept here: what many waiting requests hold is gone through by the garbage collector again and again.
            request = passage.protected.prepare(secrets, arrived(scope, passage), tenant, render=rendered)
            scope[ATTEMPT] = None if request is None else await begun(passage, self._nebis, request)
        except NebisError as error:
            passage.answer = passage.protected.refused(error)
        if passage.answer is not None:
            await passage.send_answer()
            return
        passage.is_own = True
        await self._app(scope, receive, send)
