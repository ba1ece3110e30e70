"""A real RabbitMQ server, with an Erlang port mapper of its own."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.engines.daemon import Daemon
from tests.engines.ports import free_port
from tests.engines.rabbitmq_programs import find_rabbitmq, program_paths, server_script

_QUEUE_TABLE = "mnesia/*/rabbit_durable_queue.DC?"
_ERLANG_OPTIONS = (
    "-kernel inet_dist_use_interface {127,0,0,1}",
    "-mnesia dump_log_time_threshold 100",  # Milliseconds until what was declared is in its table.
    "+S 2:2",
)


class RabbitServer(Daemon):
    """One broker; its guest may do everything, from the loopback interface only."""

    name = "RabbitMQ"
    start_seconds = 110

    def __init__(self) -> None:
        self._root = find_rabbitmq()
        self._mapper_port = free_port()
        self._peer_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        super().__init__()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start the port mapper, which the server would otherwise leave behind, and then the server."""
        if self._mapper is None:
            self._mapper = self._spawn(["epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"])
        super().start()

    def await_kept(self, queue: str) -> None:
        """Wait until a crash leaves a durable queue alone.

        Mnesia, killed within seconds of its start, may throw away a log that it had written; its tables it keeps.
        """
        while not self._is_kept(queue.encode()):
            time.sleep(0.01)  # Only the files tell; there is no event to wait for.

    def _is_kept(self, queue: bytes) -> bool:
        with suppress(FileNotFoundError):  # Replaced by a newer one while it was looked at.
            return any(queue in table.read_bytes() for table in self._home.glob(_QUEUE_TABLE))
        return False

    def close(self) -> None:
        """End the server and its port mapper, and remove the files."""
        self.crash()
        if self._mapper is not None:
            self._reap(self._mapper, signal.SIGKILL)
            self._mapper = None
        super().close()

    def _command(self) -> Sequence[str]:
        (self._home / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            # A temporary folder may be small; an alarm would block publishers.
            "disk_free_limit.absolute = 1MB\n"
            "log.console = true\n"
            "log.console.level = warning\n"
            "log.file = false\n"
        )
        return [str(server_script(self._root))]

    def _environment(self) -> Mapping[str, str]:
        search_path = [*map(str, program_paths(self._root)), os.environ["PATH"]]
        return {
            "PATH": os.pathsep.join(search_path),
            "HOME": str(self._home),  # Where Erlang keeps its cookie.
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"nebis{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._peer_port),
            "RABBITMQ_CONFIG_FILE": str(self._home / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(self._home / "absent.conf"),
            "RABBITMQ_ENABLED_PLUGINS": "",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._home / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._home),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(_ERLANG_OPTIONS),
            # The script then becomes the server instead of waiting for it.
            "RUNNING_UNDER_SYSTEMD": "1",
        }

    def _is_ready(self) -> bool:
        # The listener opens when everything else has started.
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(8) != b""
        return False
