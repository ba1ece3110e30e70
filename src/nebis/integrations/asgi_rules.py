"""Any ASGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Sequence
from functools import partial
from inspect import isawaitable

from nebis.aio import AsyncNebis
from nebis.async_attempt import Beginning
from nebis.core.record import Record
from nebis.errors import NebisError
from nebis.flows.request import Ending, Request
from nebis.integrations.asgi import PASSAGE, App, Disconnected, Passage, Receive, Scope, Send, entered, left, run_apart
from nebis.integrations.asgi_request import arrived, begun, given_tenant, passage_of, taken
from nebis.integrations.routetable import announced
from nebis.integrations.rules import ATTEMPT, Matching, Rule, rendered, rule
from nebis.runtime.eventloop import AsyncWorld

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
            await found.run(scope, receive, send)


class _Claiming:
    """An application behind one rule; made once per rule, as a function for each request is many objects."""

    def __init__(self, app: App, chosen: Rule[AsyncNebis]) -> None:
        self.pattern = chosen.pattern
        self.protection = chosen.protection
        self._tenant = chosen.protection.tenant if callable(chosen.protection.tenant) else None
        self._nebis = chosen.nebis
        self._app = app

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Claim in the server's own task, as most of what comes after needs no other: a refusal, or a replay.

        Only the application runs in a task of ours.
        """
        if PASSAGE in scope:
            await self._inside(scope, receive, send)
            return
        passage, stays = entered(scope, receive, send, self.protection), True
        try:
            try:
                asked = await self._prepared(scope, passage)
                if asked is None:
                    scope[ATTEMPT] = None
                else:
                    world, request = asked
                    found: Record | Ending | None = await world.retelling.known(request)
                    if found is None:
                        claiming = Beginning(world, request)
                        ended = claiming.begin()
                        try:
                            found = await ended
                        except CancelledError:
                            # Nobody waits, and perhaps it is claimed: a task of ours goes on, as if it had been one.
                            stays = False
                            run_apart(partial(self._go_on, claiming, ended), scope, passage, self._nebis).cancel()
                            raise
                    if isinstance(found, Record):
                        scope[ATTEMPT] = await taken(passage, claiming.opened(found))
                    elif (reference := passage.tell(found)) is not None:
                        await passage.rebuild(reference)
            except NebisError as error:
                passage.answer = self.protection.refused(error)
            if passage.answer is not None:
                await passage.send_answer()
                return
            passage.is_own, stays = True, False
            await run_apart(self._app, scope, passage, self._nebis)
        except Disconnected:
            return
        finally:
            if stays:
                left(scope, passage)

    async def _go_on(
        self, claiming: Beginning, ended: Future[Record | Ending], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run what a claim allows whose caller is gone."""
        passage: Passage = scope[PASSAGE]
        found = await (claiming.again() if ended.cancelled() else ended)
        scope[ATTEMPT] = await taken(passage, claiming.opened(found))
        await self._run(passage, scope, receive, send)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Claim where something else goes around the route already."""
        passage = passage_of(scope, self.protection)
        try:
            asked = await self._prepared(scope, passage)
            scope[ATTEMPT] = None if asked is None else await begun(passage, self._nebis, asked[1])
        except NebisError as error:
            passage.answer = passage.protected.refused(error)
        await self._run(passage, scope, receive, send)

    async def _run(self, passage: Passage, scope: Scope, receive: Receive, send: Send) -> None:
        if passage.answer is not None:
            await passage.send_answer()
            return
        passage.is_own = True
        await self._app(scope, receive, send)

    async def _prepared(self, scope: Scope, passage: Passage) -> tuple[AsyncWorld, Request] | None:
        """Return what to claim and where, once the request is whole; None if it has no key and may run without one."""
        if passage.body is None:
            await passage.whole()
        tenant = given_tenant(scope, self.protection) if self._tenant is None else self._tenant(scope)
        # Most are text, for which it would take long to find that nobody has to wait for it.
        if type(tenant) is not str and isawaitable(tenant):
            tenant = await tenant
        world, secrets = self._nebis.opened_here() or await self._nebis.opened()
        passage.render = rendered
        passage.tenant = str(tenant)
        request = self.protection.prepare(secrets, arrived(scope, passage), tenant, render=rendered)
        return None if request is None else (world, request)
