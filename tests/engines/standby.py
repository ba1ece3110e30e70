"""A standby of a test server: its copy, following it."""

from pathlib import Path

from tests.engines.postgres import SUPERUSER, PostgresServer

_COPY_SECONDS = 60


class StandbyServer(PostgresServer):
    """A streaming replica that calls itself `name` to its primary, which must let everybody in without a password."""

    def __init__(self, binaries: Path, primary: PostgresServer, *, name: str) -> None:
        self._primary = primary
        self._name = name
        super().__init__(binaries)

    def _create_cluster(self) -> None:
        connection = f"host=127.0.0.1 port={self._primary.port} user={SUPERUSER} application_name={self._name}"
        arguments = ["--pgdata", str(self._data), "--dbname", connection, "--write-recovery-conf"]
        arguments += ["--checkpoint=fast", "--wal-method=stream", "--no-sync"]
        process = self._launcher.start("pg_basebackup", arguments, home=self._home, log=self._log)
        if process.wait(timeout=_COPY_SECONDS) != 0:
            raise RuntimeError(f"pg_basebackup failed. It said:\n{self.log[-2000:]}")
