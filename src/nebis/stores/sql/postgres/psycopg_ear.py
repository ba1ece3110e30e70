"""LISTEN through psycopg."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import psycopg

from nebis.ports.store import IndefiniteFailure
from nebis.stores.sql.postgres.listener import CHANNEL
from nebis.stores.sql.postgres.psycopg_blocking import BlockingPsycopg


class PsycopgEar:
    """One psycopg connection that listens."""

    def __init__(self, driver: BlockingPsycopg) -> None:
        self._driver = driver
        self._bell, self._button = socket.socketpair()

    def hear(self, heard: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Call `ready` once connected, then `heard` with every payload, until woken; raise when the connection ends."""
        try:
            connection = self._driver.connect()
            try:
                connection.execute(f"LISTEN {CHANNEL}")
                ready()
                self._hear(connection, heard)
            finally:
                self._driver.discard(connection)
        except psycopg.Error as error:
            raise IndefiniteFailure(f"the listening connection was lost ({type(error).__name__})") from None
        finally:
            self._bell.close()
            self._button.close()

    def wake(self) -> None:
        """Make `hear` return."""
        self._button.close()

    def _hear(self, connection: psycopg.Connection[object], heard: Callable[[str], None]) -> None:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._bell.fileno(), select.POLLIN)
        while True:
            # Those that came together with the answer to LISTEN are not announced by the socket any more.
            for notification in connection.notifies(timeout=0):
                heard(notification.payload)
            ready = poll.poll()
            if any(descriptor == self._bell.fileno() for descriptor, _ in ready):
                return
