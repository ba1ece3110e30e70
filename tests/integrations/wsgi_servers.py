"""WSGI applications behind real servers, in threads of the test's own process, where their scenarios are."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import waitress
from gunicorn.app.base import BaseApplication
from gunicorn.workers.base import Worker
from gunicorn.workers.gthread import ThreadWorker
from gunicorn.workers.sync import SyncWorker

PATIENCE_SECONDS = 20.0
THREADS = 64
"""More than there are twins at once: each of them stands before a gate, or waits, on a thread of its own."""
SYNC_WORKERS = 12


@contextmanager
def waitress_serving(app: Any) -> Iterator[tuple[str, int]]:
    """Serve while the block runs; yields the address."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = waitress.create_server(app, host="127.0.0.1", port=0, threads=THREADS, clear_untrusted_proxy_headers=False)
    thread = threading.Thread(target=server.run, name="waitress")
    thread.start()
    address = server.socket.getsockname()

    told = threading.Event()

    def hang_up() -> None:
        """Leave the loop nothing to watch, which ends it, once nobody writes to the trigger any more."""
        told.wait(PATIENCE_SECONDS)
        for channel in list(server.active_channels.values()):
            channel.handle_close()
        server.close()

    try:
        yield address
    finally:
        server.trigger.pull_trigger(hang_up)
        told.set()
        thread.join(PATIENCE_SECONDS)
        server.task_dispatcher.shutdown()
        assert not thread.is_alive()


class _Gunicorn(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types.
    def __init__(self, app: Any, threads: int) -> None:
        self._app = app
        self._threads = threads
        super().__init__()

    def load_config(self) -> None:
        self.cfg.set("threads", self._threads)
        self.cfg.set("loglevel", "critical")
        self.cfg.set("timeout", 1)

    def load(self) -> Any:
        return self._app


class _Unsignalled(Worker):  # type: ignore[misc]
    """A worker that leaves the signals to the process of the tests."""

    def init_signals(self) -> None:
        pass


class _Thread(_Unsignalled, ThreadWorker):  # type: ignore[misc]
    pass


class _Sync(_Unsignalled, SyncWorker):  # type: ignore[misc]
    pass


@contextmanager
def gunicorn_serving(app: Any, *, is_sync: bool) -> Iterator[tuple[str, int]]:
    """Serve by one worker with threads, or by sync workers, each of which answers one request at a time."""
    application = _Gunicorn(app, 1 if is_sync else THREADS)
    logger = application.cfg.logger_class(application.cfg)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # As gunicorn does with sockets of its own.
        kinds = [_Sync] * SYNC_WORKERS if is_sync else [_Thread]
        workers = [kind(0, os.getppid(), [listening], application, 1, application.cfg, logger) for kind in kinds]
        threads = [threading.Thread(target=worker.init_process, name="gunicorn") for worker in workers]
        for thread in threads:
            thread.start()
        try:
            yield listening.getsockname()
        finally:
            for worker in workers:
                worker.handle_exit(None, None)
                os.write(worker.PIPE[1], b"1")
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            for worker in workers:
                worker.tmp.close()
                for end in worker.PIPE:
                    os.close(end)
            assert not any(thread.is_alive() for thread in threads)
