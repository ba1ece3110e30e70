"""Start-up and shutdown of a Django project under ASGI, of which Django itself knows nothing."""

from __future__ import annotations

from typing import Any

from nebis.aio import AsyncNebis
from nebis.integrations.asgi import App, Receive, Scope, Send, lifespan
from nebis.sync import Nebis


class WithLifespan:
    """An ASGI application whose store is open while it is served, and whose attempts end before it closes (A5)."""

    def __init__(self, app: App, nebis: AsyncNebis | Nebis) -> None:
        """Wrap what `get_asgi_application` returned."""
        self.app = app
        self._span = lifespan(nebis)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the lifespan, and pass everything else on."""
        if scope["type"] == "lifespan":
            await self._serve(receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with self._span(self.app):
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:  # noqa: BLE001 - the server is told, and ends.
            failed: dict[str, Any] = {"type": f"lifespan.{phase}.failed", "message": str(error)}
            await send(failed)
        else:
            await send({"type": "lifespan.shutdown.complete"})
