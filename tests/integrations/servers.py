"""Applications of the conformance suite behind real servers, in threads of the test's own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

PATIENCE_SECONDS = 20.0


class UvicornThread:
    """A uvicorn server on a free port."""

    def __init__(self, app: Any, *, http: str) -> None:
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, http=http, log_level="error", lifespan="on", timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        startup = self._server.startup

        async def signalled(*arguments: Any, **named: Any) -> None:
            await startup(*arguments, **named)
            self._started.set()

        self._server.startup = signalled  # type: ignore[method-assign]  # Otherwise the test would have to poll.
        self._thread = threading.Thread(target=self._run, name="uvicorn")

    def _run(self) -> None:
        try:
            self._server.run()
        finally:
            self._started.set()

    def start(self) -> tuple[str, int]:
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS)
        assert self._server.started, "the application did not start"
        address: tuple[str, int] = self._server.servers[0].sockets[0].getsockname()
        return address

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def uvicorn_serving(app: Any, *, http: str = "h11") -> Iterator[tuple[str, int]]:
    """Serve an ASGI application while the block runs; yields its address."""
    server = UvicornThread(app, http=http)
    address = server.start()
    try:
        yield address
    finally:
        server.stop()
