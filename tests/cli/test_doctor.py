"""`nebis doctor` on real servers, healthy and ill."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from nebis import Nebis
from nebis.errors import ConfigError
from nebis.stores import open_blocking
from tests.cli.command import Outcome, nebis
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.engines.standby import StandbyServer

SECRET = "0123456789abcdef" * 4
OTHER_SECRET = "fedcba9876543210" * 4


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server whose settings these tests may change."""
    with PostgresServer(find_binaries()) as server:
        yield server


def lines(outcome: Outcome, status: str) -> list[str]:
    """Return the lines of one status; whatever is wrong is said in one line each."""
    return [line for line in outcome.stdout.splitlines() if line.startswith(f"{status} ")]


def the_failure(outcome: Outcome) -> str:
    [line] = lines(outcome, "fail")
    assert (outcome.status, outcome.stderr) == (1, "")
    return line


def test_a_migrated_server_is_healthy(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)

    outcome = nebis("doctor", store=postgres_url)

    assert (outcome.status, outcome.stderr) == (0, "")
    assert [line.split()[1] for line in lines(outcome, "ok")] == ["store", "durability", "schema", "clock"]
    assert "a record whose owner died is recovered by the next request" in outcome.stdout


def test_fsync_off_is_a_failure(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    nebis("migrate", "apply", store=url)
    own_server.restart(settings={"fsync": "off"})

    outcome = nebis("doctor", store=url)

    own_server.restart()
    assert "fsync is off: a crash of the machine loses or corrupts records; set fsync = on" in the_failure(outcome)


def test_full_page_writes_off_is_a_failure(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    nebis("migrate", "apply", store=url)
    own_server.restart(settings={"full_page_writes": "off"})

    outcome = nebis("doctor", store=url)

    own_server.restart()
    assert "set full_page_writes = on" in the_failure(outcome)


def test_synchronous_commit_off_is_a_warning_that_strict_makes_a_failure(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)
    with psycopg.connect(postgres_url) as connection:
        database = connection.info.dbname
        connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off".encode())

    lenient = nebis("doctor", store=postgres_url)
    strict = nebis("doctor", "--strict", store=postgres_url)

    [warning] = lines(lenient, "warn")
    assert "set synchronous_commit = on" in warning
    assert (lenient.status, strict.status) == (0, 1)


def test_standbys_are_told_by_whether_commits_wait_for_them(own_server: PostgresServer) -> None:
    """F030: an asynchronous standby voids the promise on failover; a replica is no store at all."""
    url = own_server.create_database()
    nebis("migrate", "apply", store=url)
    with StandbyServer(find_binaries(), own_server, name="follower") as standby:
        _wait_for_standby(own_server)
        replica = nebis("doctor", store=url.replace(str(own_server.port), str(standby.port)))
        loose = nebis("doctor", store=url)
        with pytest.raises(ConfigError, match="asynchronous standbys are attached"):
            open_blocking(url, durability="strict")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE ordinary LOGIN")
            ordinary = nebis("doctor", store=url.replace("nebis@", "ordinary@"))
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'follower'")
            connection.execute("SELECT pg_reload_conf()")
            _wait_for_standby(own_server, sync_state="sync")
            safe = nebis("doctor", store=url)
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    assert "this server is a replica, whose records lag behind; point the URL at the primary" in the_failure(replica)
    for outcome in (loose, ordinary):
        [warning] = lines(outcome, "warn")
        assert "asynchronous standbys are attached (1): the promise is void on failover" in warning
    assert loose.status == 0
    assert lines(safe, "warn") == []
    assert "commits wait for the standbys" in safe.stdout


def _wait_for_standby(server: PostgresServer, *, sync_state: str = "async") -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = %s"
        while connection.execute(query, [sync_state]).fetchone() != (1,):
            connection.execute("SELECT pg_sleep(0.02)")


def test_an_unreachable_server_is_one_line() -> None:
    failure = the_failure(nebis("doctor", store="postgresql://shop:hunter2@127.0.0.1:1/shop"))

    assert "nothing listens at 127.0.0.1:1; start PostgreSQL there or correct the URL" in failure


def test_a_wrong_password_and_a_missing_database_are_one_line() -> None:
    with PostgresServer(find_binaries(), password="right") as server:
        wrong = nebis("doctor", store=server.url().replace("right", "wrong"))
        missing = nebis("doctor", store=server.url("nowhere"))

    assert "refuses the password of role 'nebis'" in the_failure(wrong)
    assert "has no database 'nowhere'" in the_failure(missing)


def test_a_missing_schema_says_how_to_make_it(postgres_url: str) -> None:
    assert "it has no tables of nebis; run `nebis migrate apply`" in the_failure(nebis("doctor", store=postgres_url))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("INSERT INTO nebis_migration VALUES ('9999_next', 'x', 0)", "newer than the code and has 9999_next"),
        ("DELETE FROM nebis_migration WHERE name >= '0002'", "older than the code and lacks 0002_counters"),
        (
            "UPDATE nebis_migration SET checksum = 'x' WHERE name < '0002'",
            "0001_record was applied with other contents",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_a_failure(postgres_url: str, change: str, words: str) -> None:
    nebis("migrate", "apply", store=postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(change.encode())

    outcome = nebis("doctor", store=postgres_url)
    verified = nebis("migrate", "verify", store=postgres_url)

    assert words in the_failure(outcome)
    assert words in verified.stderr
    assert verified.status == 1


def test_a_newer_schema_that_lets_this_version_go_on_is_a_note(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO nebis_migration VALUES ('9999_next', 'x', 0, '0002_counters_and_attempts')")

    outcome = nebis("doctor", store=postgres_url)

    assert outcome.status == 0
    assert any("newer than this code and has 9999_next" in line for line in lines(outcome, "note"))


def test_tables_that_the_role_may_not_read_are_a_failure(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS blind")
        connection.execute("CREATE ROLE blind LOGIN")

    failure = the_failure(nebis("doctor", store=postgres_url.replace("nebis@", "blind@")))

    assert "permission denied for table nebis_migration" in failure


def test_a_doctor_changes_nothing(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)

    nebis("doctor", store=postgres_url)

    backend = open_blocking(postgres_url)
    known = backend.sessions.run(backend.store.secrets(None))
    backend.sessions.close()
    assert (known.generated, known.check_values) == (None, frozenset())


def test_a_file_is_looked_at_with_its_journal_and_its_mode(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nebis.db"
    nebis("migrate", "apply", store=url)

    private = nebis("doctor", store=url)
    (tmp_path / "nebis.db").chmod(0o644)
    public = nebis("doctor", store=url)

    assert (private.status, public.status) == (0, 0)
    assert f"SQLite {sqlite3.sqlite_version}" in private.stdout
    assert "belongs to one user (mode 600)" in private.stdout
    assert any("has mode 644" in line and "chmod 600" in line for line in lines(public, "warn"))


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("", None, "is a directory; name a file in it"),
        ("no/such/folder/nebis.db", None, "does not exist; create it"),
        ("absent.db", None, "is not there yet; run `nebis migrate apply`"),
        ("empty.db", b"", "it has no tables of nebis; run `nebis migrate apply`"),
        ("text.db", b"This is certainly not a database. " * 100, "is not a SQLite database; name another file"),
    ],
)
def test_a_file_that_cannot_serve_is_one_line(tmp_path: Path, name: str, contents: bytes | None, words: str) -> None:
    if contents is not None:
        (tmp_path / name).write_bytes(contents)

    assert words in the_failure(nebis("doctor", store=f"sqlite:///{tmp_path}/{name}"))


@pytest.mark.parametrize(
    ("used", "configured", "status", "words"),
    [
        (None, "", "ok", "the store keeps the only one"),
        (SECRET, SECRET, "ok", "NEBIS_SECRET covers every secret in use"),
        (SECRET, f"{OTHER_SECRET},{SECRET}", "ok", "NEBIS_SECRET covers every secret in use"),
        (None, SECRET, "ok", "NEBIS_SECRET covers every secret in use"),
        (SECRET, "", "fail", "NEBIS_SECRET is not set and lacks 1 of the secrets"),
        (SECRET, OTHER_SECRET, "fail", "list the new one first and keep the old one"),
        (SECRET, "short", "fail", "Secret number 1 is unusable"),
    ],
)
def test_the_secret_of_the_environment_is_compared_with_the_store(
    tmp_path: Path, used: str | None, configured: str, status: str, words: str
) -> None:
    """F116: a process with the wrong list would forget every key."""
    url = f"sqlite:///{tmp_path}/nebis.db"
    with Nebis(url, secret=used):
        pass

    outcome = nebis("doctor", store=url, NEBIS_SECRET=configured)

    assert outcome.status == (1 if status == "fail" else 0)
    assert _starts(url, configured or None) == (status == "ok")
    [line] = [line for line in lines(outcome, status) if " secret " in line]
    assert words in line
    assert configured[:16] not in outcome.stdout or not configured


def _starts(url: str, secret: str | None) -> bool:
    """Tell whether an application would start with this secret: what the doctor says must be true."""
    try:
        with Nebis(url, secret=secret):
            return True
    except ConfigError:
        return False


def test_a_memory_store_is_for_tests_only() -> None:
    outcome = nebis("doctor", store="memory://")

    [line] = lines(outcome, "warn")
    assert "use it in tests only" in line


def test_programs_get_json(tmp_path: Path) -> None:
    outcome = nebis("doctor", "--json", store=f"sqlite:///{tmp_path}/nebis.db")

    told = json.loads(outcome.stdout)
    assert outcome.status == 1
    assert (told["store"], told["healthy"]) == (f"sqlite:///{tmp_path}/nebis.db", False)
    assert [(finding["status"], finding["check"]) for finding in told["findings"]] == [("fail", "schema")]


def test_what_cannot_be_read_is_said_beside_the_rest(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nebis.db"
    nebis("migrate", "apply", store=url)
    with sqlite3.connect(tmp_path / "nebis.db") as connection:
        connection.execute("DROP TABLE nebis_meta")
    connection.close()

    outcome = nebis("doctor", store=url)

    assert "secret      it could not be read" in the_failure(outcome)
    assert any("worker" in line for line in lines(outcome, "note"))
