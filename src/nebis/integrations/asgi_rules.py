"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any

from nebis.aio import AsyncNebis
from nebis.async_attempt import AsyncOpenAttempt, Leading
from nebis.core.secret import Secrets
from nebis.errors import NebisError
from nebis.flows.request import Ending, Request
from nebis.integrations.asgi import (
    PASSAGE,
    App,
    Disconnected,
    Passage,
    Receive,
    Scope,
    Send,
    entered,
    left,
    run_apart,
    start_apart,
)
from nebis.integrations.asgi_request import arrived, begun, given_tenant, passage_of
from nebis.integrations.routetable import announced
from nebis.integrations.rules import ATTEMPT, Matching, Rule, rendered, rule
from nebis.runtime.eventloop import AsyncWorld

__all__ = ["ATTEMPT", "Protected", "rule"]


class Protected:
    """An ASGI application whose requests are claimed before it sees them, by the first rule that matches."""

    def __init__(self, app: App, *, rules: Sequence[Rule[AsyncNebis]]) -> None:
        self.app = app
        self.rules = tuple(rules)
        self._matching = Matching([_Route(app, one) for one in self.rules]).first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Claim in the server's own task if a rule is for a request: a refusal or a replay needs no other.

        Only the application runs in a task of ours. All that is awaited before it is written out here, as each
        coroutine is made for every request, held while that waits, and passed through when it goes on.
        """
        route = self._matching(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if route is None or PASSAGE in scope:
            await self._pass_on(route, scope, receive, send)
            return
        passage = entered(scope, receive, send, route.protection)
        try:
            try:
                while passage.body is None:
                    passage.keep(await receive())
                tenant = route.tenant_of(scope)
                # Most are text, for which it would take long to find that nobody has to wait for it.
                if type(tenant) is not str and isawaitable(tenant):
                    tenant = await tenant
                world, secrets = route.nebis.opened_here() or await route.nebis.opened()
                request = route.request_of(scope, passage, tenant, secrets)
                if request is None:
                    scope[ATTEMPT] = None
                    passage.is_own = True
                    await run_apart(self.app, scope, passage, route.nebis)
                    return
                asked = world.retelling.ask_for(request)
                ending: Ending | None = None if asked is None else world.retelling.ending(request.claim, await asked)
                if ending is None:
                    ending = await _Claim(world, request, route, scope, passage).lead()
                    if ending is None:
                        return
                reference = passage.tell(ending)
                if reference is not None:
                    await passage.rebuild(reference)
            except NebisError as error:
                if passage.is_own:
                    raise  # By the application.
                passage.answer = route.protection.refused(error)
            await passage.send_answer()
        except Disconnected:
            return
        finally:
            if not passage.is_own:
                left(scope, passage)

    async def _pass_on(self, route: _Route | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application see what no rule is for, or what something else goes around already."""
        if route is not None:
            await route.run_inside(scope, receive, send)
        elif scope["type"] == "lifespan":
            # A framework that has these rules as its middleware knows more than they do.
            with announced(scope.get("app", self)):
                await self.app(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class _Route:
    """An application behind one rule; made once per rule, as a function for each request is many objects."""

    def __init__(self, app: App, chosen: Rule[AsyncNebis]) -> None:
        self.pattern = chosen.pattern
        self.protection = chosen.protection
        self.nebis = chosen.nebis
        self.app = app
        self._tenant = chosen.protection.tenant if callable(chosen.protection.tenant) else None

    def tenant_of(self, scope: Scope) -> object:
        """Return whose request it is, or what has to be awaited for that."""
        return given_tenant(scope, self.protection) if self._tenant is None else self._tenant(scope)

    def request_of(self, scope: Scope, passage: Passage, tenant: object, secrets: Secrets) -> Request | None:
        """Return what to claim for a request that is whole; None if it has no key and may run without one."""
        passage.render = rendered
        passage.tenant = str(tenant)
        request = self.protection.prepare(secrets, arrived(scope, passage), tenant, render=rendered)
        if request is not None:
            passage.headers, passage.tree = (), None  # Nobody asks for them again, and many requests wait.
        return request

    async def run_inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Claim where something else goes around the route already."""
        passage = passage_of(scope, self.protection)
        try:
            if passage.body is None:
                await passage.whole()
            tenant = self.tenant_of(scope)
            if isawaitable(tenant):
                tenant = await tenant
            _, secrets = self.nebis.opened_here() or await self.nebis.opened()
            request = self.request_of(scope, passage, tenant, secrets)
            scope[ATTEMPT] = None if request is None else await begun(passage, self.nebis, request)
        except NebisError as error:
            passage.answer = passage.protected.refused(error)
        if passage.answer is not None:
            await passage.send_answer()
            return
        passage.is_own = True
        await self.app(scope, receive, send)


class _Claim(Leading):
    """A claim that leads on to the application, which then tells the caller itself."""

    _route: _Route | None
    _scope: Scope | None
    _passage: Passage | None

    def __init__(self, world: AsyncWorld, request: Request, route: _Route, scope: Scope, passage: Passage) -> None:
        Leading.__init__(self, world, request)
        self._route, self._scope, self._passage = route, scope, passage

    def granted(self, opened: AsyncOpenAttempt, ended: Future[Any]) -> None:
        """Run the application, also for a caller who is gone: perhaps it left after the claim was made (F075)."""
        route, scope, passage = self._route, self._scope, self._passage
        assert route is not None
        assert scope is not None
        assert passage is not None
        # The scope has the attempt, which has this claim: a circle that only the collector would find.
        self._route = self._scope = self._passage = None
        passage.end = ended
        passage.attempt = opened
        passage.is_own = True
        scope[ATTEMPT] = opened.attempt
        scope[PASSAGE] = passage  # Whoever left has taken it out.
        start_apart(route.app, scope, passage, route.nebis, self._context)
