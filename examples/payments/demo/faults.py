"""What the Retry Lab may break, and nothing else can: answers that get lost, a server that dies at the worst moment.

The page names a fault in a header of its request. None of this exists outside of the demo.
"""

import asyncio
import os
import signal
from collections.abc import MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.payments import bank

LAST_WORDS_SECONDS = 0.25
"""So that the page hears how far it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the page: whose it is, on which lane it is drawn, and what is to go wrong with it."""

    session: str
    lane: str
    fault: str


asked: ContextVar[Asked | None] = ContextVar("asked", default=None)
"""The request of the page that is being served; it follows the request into every task."""


class Faults:
    """Reads what a request asks to go wrong, and loses its answer if it asks for that."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or not _is_of_page(scope):
            await self.app(scope, receive, send)
            return

        async def hang_up(message: MutableMapping[str, Any]) -> None:
            """Close the connection after each answer: browsers quietly repeat what was lost on one that they kept."""
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"])["Connection"] = "close"
            await send(message)

        headers = Headers(scope=scope)
        if "x-lab-session" not in headers:
            await self.app(scope, receive, hang_up)
            return
        fault = headers.get("x-lab-fault", "")
        asked.set(Asked(session=headers["x-lab-session"], lane=headers.get("x-lab-lane", ""), fault=fault))
        if fault != "lose":
            await self.app(scope, receive, hang_up)
            return

        async def swallow(_: MutableMapping[str, Any]) -> None:
            """Take the answer, and let nobody have it."""

        await self.app(scope, receive, swallow)
        # As in a tunnel: the connection is there, and nothing comes. The client gives up before we do.
        while (await receive())["type"] != "http.disconnect":
            pass


def _is_of_page(scope: Scope) -> bool:
    return scope["path"] == "/" or scope["path"].startswith("/lab/") or "x-lab-session" in Headers(scope=scope)


async def die_after_charge(response: httpx2.Response) -> None:
    """Kill this process once the gateway has said that the card is charged, before anybody has written it down."""
    now = asked.get()
    if now is not None and now.fault == "crash" and response.request.url.path == "/charges":
        await asyncio.sleep(LAST_WORDS_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Arm the client of the gateway."""
    bank.client.event_hooks = {"response": [die_after_charge]}
