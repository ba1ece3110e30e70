import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.engines import binaries
from tests.engines.postgres import PostgresServer


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests may crash without disturbing others."""
    with PostgresServer(binaries.find_binaries()) as server:
        yield server


def _execute(url: str, statement: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_the_server_syncs_every_commit_to_disk(postgres_server: PostgresServer) -> None:
    settings = _execute(
        postgres_server.url(),
        "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')",
    )

    assert dict(settings) == {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


def test_the_server_listens_on_loopback_only(postgres_server: PostgresServer) -> None:
    [(addresses, sockets)] = _execute(
        postgres_server.url(), "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')"
    )

    assert (addresses, sockets) == ("127.0.0.1", "")


def test_databases_of_two_tests_share_nothing(postgres_server: PostgresServer, postgres_url: str) -> None:
    other_url = postgres_server.create_database()
    _execute(postgres_url, "CREATE TABLE mine (value int)")

    [(tables,)] = _execute(other_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    postgres_server.drop_database(other_url)

    assert tables == 0


def test_a_database_is_copied_from_its_template(postgres_server: PostgresServer, postgres_url: str) -> None:
    _execute(postgres_url, "CREATE TABLE copied AS SELECT 42 AS value")

    copy_url = postgres_server.create_database(template=postgres_url.rpartition("/")[2])
    rows = _execute(copy_url, "SELECT value FROM copied")
    postgres_server.drop_database(copy_url)

    assert rows == [(42,)]


def test_dropping_a_database_ends_its_connections(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with psycopg.connect(url) as connection:
        postgres_server.drop_database(url)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_committed_rows_survive_a_crash_and_open_transactions_do_not(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    _execute(url, "CREATE TABLE payment (id int PRIMARY KEY)")
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO payment VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO payment VALUES (2)")

        own_server.crash()

        assert not own_server.is_running
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    own_server.start()
    assert _execute(url, "SELECT id FROM payment") == [(1,)]


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_keeps_port_and_rows_though_a_client_is_connected(
    own_server: PostgresServer, immediate: bool
) -> None:
    url = own_server.create_database()
    _execute(url, "CREATE TABLE kept AS SELECT 1 AS value")
    with psycopg.connect(url) as connection:
        own_server.restart(immediate=immediate)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    assert _execute(url, "SELECT value FROM kept") == [(1,)]


def test_extra_settings_hold_until_the_next_start(own_server: PostgresServer) -> None:
    own_server.restart(settings={"max_connections": "17"})
    with_extra = _execute(own_server.url(), "SHOW max_connections")

    own_server.restart()

    assert with_extra == [("17",)]
    assert _execute(own_server.url(), "SHOW max_connections") == [("200",)]


def test_a_stopped_server_is_started_for_the_next_database(own_server: PostgresServer) -> None:
    own_server.stop()

    url = own_server.create_database()

    assert _execute(url, "SELECT 1") == [(1,)]


def test_an_impossible_setting_is_reported_with_the_log(own_server: PostgresServer) -> None:
    own_server.stop()

    with pytest.raises(RuntimeError, match=r"(?s)did not start.*no_such_setting"):
        own_server.start(settings={"no_such_setting": "1"})


def test_a_password_is_asked_for_when_one_was_set() -> None:
    with PostgresServer(binaries.find_binaries(), password="p@ss/word") as server:
        assert _execute(server.url(), "SELECT 1") == [(1,)]

        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.url().replace("p%40ss%2Fword", "wrong"))


def _segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


@pytest.mark.parametrize("is_killed", [False, True])
def test_closing_removes_process_files_and_shared_memory(is_killed: bool) -> None:
    server = PostgresServer(binaries.find_binaries())
    home = server._home
    segment = (home / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
    assert segment in _segments()
    if is_killed:
        server.crash()

    server.close()

    assert not server.is_running
    assert not home.exists()
    assert segment not in _segments()


def test_version_15_runs_beside_the_newest(postgres15_server: PostgresServer, postgres_server: PostgresServer) -> None:
    [(version,)] = _execute(postgres15_server.url(), "SHOW server_version_num")

    assert int(version) // 10_000 == postgres15_server.version == 15
    assert postgres_server.version >= 18


def test_the_variable_that_names_the_binaries_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "initdb").touch()
    monkeypatch.setenv(binaries.BINARIES_VARIABLE, str(tmp_path))

    assert binaries.find_binaries() == tmp_path


def test_a_wrong_variable_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(binaries.BINARIES_VARIABLE, str(tmp_path))

    with pytest.raises(FileNotFoundError, match=binaries.BINARIES_VARIABLE):
        binaries.find_binaries()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_root_without_user_namespaces_runs_the_server_as_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(binaries, "_NAMESPACE", ("false",))
    programs = binaries.copy_programs(binaries.find_binaries(), tmp_path / "private")
    (tmp_path / "private").chmod(0o700)

    with PostgresServer(programs) as server:
        assert _execute(server.url(), "SELECT 1") == [(1,)]
        assert server._data.stat().st_uid != 0


def test_a_killed_test_run_leaves_no_files_behind() -> None:
    script = (
        "from tests.engines.binaries import find_binaries\n"
        "from tests.engines.postgres import PostgresServer\n"
        "server = PostgresServer(find_binaries())\n"
        "print(server._process.pid, server._home, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        pid, home = run.stdout.readline().split()
        assert Path(home).is_dir()

        run.kill()
        # The janitor shares this stream with the run that was killed, so its end is the end of the janitor.
        run.stderr.read()

    # The server would notice within a minute that its directory is gone; the test does not wait for that.
    os.kill(int(pid), signal.SIGQUIT)
    assert not Path(home).exists()
