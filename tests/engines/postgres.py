"""A real PostgreSQL server for the tests, in a temporary directory and on a free port of the loopback interface."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.engines.binaries import choose_launcher
from tests.engines.ports import free_port

SUPERUSER = "nebis"
_START_SECONDS = 60
_STOP_SECONDS = 60
_START_TRIES = 5
_RETRY_SECONDS = 0.05


class PostgresServer:
    """One database cluster: started at once, removed by `close`, or by its janitor should the tests be killed.

    Durability settings are PostgreSQL's own (`fsync` is on). With a password, every login must give it; without one
    all are trusted. A test that stops or crashes a shared server may leave it down: the next request for a database
    starts it again.
    """

    def __init__(
        self, binaries: Path, *, password: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="nebis-postgres-"))
        self._janitor = _start_janitor(self._home)
        self._data = self._home / "data"
        self._log = self._home / "server.log"
        self._password = password
        # Of shared memory that is files in its own directory, a server that is killed leaves nothing behind.
        self._settings = {"max_connections": "200", "dynamic_shared_memory_type": "mmap", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._database_numbers = count(1)
        self._port = free_port()
        try:
            self._launcher = choose_launcher(binaries, self._home)
            self._create_cluster()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def version(self) -> int:
        """The major version, as the data directory states it."""
        return int((self._data / "PG_VERSION").read_text())

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database, for the superuser."""
        password = "" if self._password is None else f":{quote(self._password, safe='')}"
        return f"postgresql://{SUPERUSER}{password}@127.0.0.1:{self._port}/{quote(database, safe='')}"

    def create_database(self, *, template: str = "template1") -> str:
        """Create a database that no other test has and return its URL."""
        database = f"test_{next(self._database_numbers)}"
        self._administer(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(database), sql.Identifier(template))
        )
        return self.url(database)

    def drop_database(self, url: str) -> None:
        """Drop the database of this URL, ending whatever is still connected to it."""
        database = urlsplit(url).path.removeprefix("/")
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def start(self, *, settings: Mapping[str, str] | None = None) -> None:
        """Start the server and wait until it accepts connections; `settings` hold until the next start."""
        if self.is_running:
            return
        is_first_start = self._process is None
        deadline = time.monotonic() + _START_SECONDS
        for tries in count(1):
            self._process = self._spawn(settings or {})
            if self._is_ready_before(deadline):
                return
            # Processes that were killed may hold the shared memory of their server for a moment longer.
            is_held = "shared memory block" in self.log[-500:]
            if time.monotonic() >= deadline or (tries >= _START_TRIES and not is_held):
                break
            if is_held:
                time.sleep(_RETRY_SECONDS)
            if is_first_start:  # Later the port must stay: clients hold URLs, and wait for the server to come back.
                self._port = free_port()
        raise RuntimeError(f"PostgreSQL did not start. Its log ends with:\n{self.log[-2000:]}")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server and wait for its end: at once with its clients disconnected, or without even a checkpoint."""
        if self._process is None or not self.is_running:
            return
        # Not SIGTERM, which waits for every client to leave.
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait(timeout=_STOP_SECONDS)

    def restart(self, *, immediate: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """Stop, then start on the same port and data."""
        self.stop(immediate=immediate)
        self.start(settings=settings)

    def crash(self) -> None:
        """Kill every process of the server with SIGKILL, as the loss of the machine would."""
        if self._process is None or not self.is_running:
            return
        # Frozen first, so that no child is born, and none hears that the parent died, before all are killed.
        self._process.send_signal(signal.SIGSTOP)
        for child in _children(self._process.pid):
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:  # It ended by itself in between.
                continue
        self._process.kill()
        self._process.wait(timeout=_STOP_SECONDS)

    def close(self) -> None:
        """End the server for good and remove all its files."""
        try:
            self.stop(immediate=True)
        except subprocess.TimeoutExpired:  # A test froze one of its processes.
            self.crash()
        self._release_segment()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait(timeout=_STOP_SECONDS)

    def _release_segment(self) -> None:
        """Free the small segment of a server that was killed: the system has a few thousand, for everybody."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return
        if len(lines) > 6:
            _, _, segment = lines[6].strip().partition(" ")
            subprocess.run(["ipcrm", "--shmem-id", segment.strip()], stderr=subprocess.DEVNULL, check=False)

    def _create_cluster(self) -> None:
        arguments = ["--pgdata", str(self._data), "--username", SUPERUSER, "--no-sync", "--no-instructions"]
        arguments += ["--locale=C", "--encoding=UTF8"]
        if self._password is None:
            arguments += ["--auth=trust"]
        else:
            password_file = self._home / "password"
            password_file.write_text(self._password)
            arguments += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        process = self._launcher.start("initdb", arguments, home=self._home, log=self._log)
        if process.wait(timeout=_START_SECONDS) != 0:
            raise RuntimeError(f"initdb failed. It said:\n{self.log[-2000:]}")

    def _spawn(self, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        # Without a Unix socket, whose path would have to fit into 107 bytes whatever the temporary directory is.
        arguments = ["-D", str(self._data), "-h", "127.0.0.1", "-p", str(self._port), "-k", ""]
        for name, value in {**self._settings, **settings}.items():
            arguments += ["-c", f"{name}={value}"]
        return self._launcher.start("postgres", arguments, home=self._home, log=self._log)

    def _is_ready_before(self, deadline: float) -> bool:
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._says_ready(self._process.pid):
                return True
            time.sleep(0.005)  # The server announces readiness only in this file; there is no event to wait for.
        if self._process.poll() is None:
            self.crash()
        return False

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # A file left behind by a crash still says "ready", under the pid of the dead.
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _administer(self, statement: sql.Composed) -> None:
        self.start()
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


def wait_until_one_waits(url: str, beginning: str = "") -> None:
    """Return when a statement of this database that begins like this waits for a lock; the server tells nobody."""
    waiting = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND starts_with(query, %s) AND wait_event_type = 'Lock')"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(waiting, (beginning,)).fetchone() != (True,):
            connection.execute("SELECT pg_sleep(0.01)")


def _start_janitor(home: Path) -> subprocess.Popen[bytes]:
    """Start a process that removes `home` when this one closes the pipe or dies, even by SIGKILL.

    A server whose directory is gone shuts itself down within a minute, so nothing is left behind.
    """
    command = ["sh", "-c", 'cat >/dev/null; rm -rf "$0"', str(home)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:  # Not Linux: orphaned processes of the server notice and end by themselves.
        return []
