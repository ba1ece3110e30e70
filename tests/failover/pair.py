"""A primary and its standby, the loss of the one and the promotion of the other."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engines.binaries import find_binaries
from tests.engines.postgres import SUPERUSER, PostgresServer
from tests.engines.standby import StandbyServer
from tests.stores.postgres_ways import execute

NAME = "follower"
DATABASE = "shop"
_WAIT_SECONDS = 60.0


class Pair:
    """Two servers, of which clients know both: their URL names the one that may be lost first."""

    def __init__(self, binaries: Path, primary: PostgresServer) -> None:
        self._binaries = binaries
        self.primary = primary
        self.standby = StandbyServer(binaries, primary, name=NAME)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        return f"postgresql://{SUPERUSER}@{hosts}/{DATABASE}"

    def require_standby(self) -> None:
        """Let no commit be confirmed from now on that the standby has not on its disk.

        The copy was made before, and so does not itself wait for a standby that it does not have once it is promoted.
        """
        self._ask_primary(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
        self._ask_primary("SELECT pg_reload_conf()")
        _wait_until(lambda: self._replication() == ["sync"], "the standby to be synchronous")

    def part(self) -> None:
        """Let nothing more reach the standby, which the primary does not mind: it does not wait for it."""
        [(written,)] = self._ask_primary("SELECT pg_current_wal_lsn()::text")
        replayed = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
        _wait_until(lambda: execute(self.standby.url(), replayed) == [(True,)], "the standby to catch up")
        execute(self.standby.url(), "ALTER SYSTEM SET primary_conninfo = ''")
        execute(self.standby.url(), "SELECT pg_reload_conf()")
        _wait_until(lambda: self._replication() == [], "the standby to be alone")

    def fail_over(self) -> None:
        """Kill the primary with all its processes and promote the standby; what was lost stays lost."""
        self.primary.crash()
        assert execute(self.standby.url(), "SELECT pg_promote(true, 60)") == [(True,)]

    def pair_again(self) -> None:
        """Forget the dead server, and give the one that was promoted a standby of its own."""
        self.primary.close()
        self.primary = self.standby
        self.standby = StandbyServer(self._binaries, self.primary, name=NAME)

    def close(self) -> None:
        self.standby.close()
        self.primary.close()

    def ask(self, text: str) -> list[tuple[object, ...]]:
        """Ask whichever of them takes writes."""
        return execute(self.url, text)

    def _ask_primary(self, text: str) -> list[tuple[object, ...]]:
        return execute(self.primary.url(), text)

    def _replication(self) -> list[str]:
        rows = self._ask_primary("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
        return [str(state) for (state,) in rows]


@contextmanager
def paired() -> Iterator[Pair]:
    """Start a primary with an empty database, and its standby."""
    binaries = find_binaries()
    primary = PostgresServer(binaries)
    try:
        execute(primary.url(), f"CREATE DATABASE {DATABASE}")
        pair = Pair(binaries, primary)
    except BaseException:
        primary.close()
        raise
    try:
        yield pair
    finally:
        pair.close()


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)  # The servers agree among themselves; no event tells us of it.
