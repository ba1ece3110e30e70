"""`nebis migrate` on real databases."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.command import nebis, start_nebis
from tests.engines.binaries import find_binaries

NAMES = [
    *("0001_record", "0002_counters_and_attempts", "0003_people", "0004_messages", "0005_velocity"),
    *("0006_ids_that_lead", "0007_plain_checks", "0008_fewer_checks", "0009_less_log"),
]
APPLIED = "".join(f"applied {name}\n" for name in NAMES)


@pytest.fixture(params=["sqlite", "psycopg", "asyncpg"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database, as each driver's URL names it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/nebis.db"
    else:
        address: str = request.getfixturevalue("postgres_url")
        yield address.replace("postgresql:", "postgresql+asyncpg:") if request.param == "asyncpg" else address


def test_apply_prints_each_name_and_then_finds_nothing_to_do(url: str) -> None:
    first = nebis("migrate", "apply", store=url)
    second = nebis("migrate", "apply", store=url)

    assert (first.status, first.stdout, first.stderr) == (0, APPLIED, "")
    assert (second.status, second.stdout) == (0, "nothing to apply: the schema is up to date\n")


def test_verify_tells_missing_from_present_by_its_status(url: str) -> None:
    before = nebis("migrate", "verify", store=url)
    nebis("migrate", "apply", store=url)
    after = nebis("migrate", "verify", store=url)

    assert (before.status, before.stdout, before.stderr.count("\n")) == (1, "", 1)
    assert "run `nebis migrate apply`" in before.stderr
    assert (after.status, after.stdout, after.stderr) == (0, f"the schema fits: {', '.join(NAMES)}\n", "")


def test_programs_get_json(url: str) -> None:
    missing = nebis("migrate", "verify", "--json", store=url)
    applied = nebis("migrate", "apply", "--json", store=url)
    verified = nebis("migrate", "verify", "--json", store=url)

    assert (missing.status, json.loads(missing.stdout)["fits"]) == (1, False)
    assert json.loads(applied.stdout) == {"applied": NAMES}
    assert json.loads(verified.stdout) == {"fits": True, "applied": NAMES, "newer": []}


def test_looking_creates_no_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nebis.db"

    nebis("migrate", "verify", store=url)
    nebis("migrate", "print", store=url)
    pending = nebis("migrate", "print", "--pending", store=url)
    nebis("doctor", store=url)

    assert "CREATE TABLE nebis_record" in pending.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_its_rollback_journal(tmp_path: Path) -> None:
    """An application chose it because of other programs; a command must not take the choice away."""
    path = tmp_path / "nebis.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("CREATE TABLE other (id INTEGER)")
    connection.close()

    for command in (["migrate", "apply"], ["migrate", "verify"], ["doctor"]):
        assert nebis(*command, store=f"sqlite:///{path}").status == 0

    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() != ("wal",)
    connection.close()


def test_the_printed_script_is_what_apply_does_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nebis.db"
    connection = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)

    connection.executescript(nebis("migrate", "print", store=url).stdout)
    connection.close()

    assert nebis("migrate", "verify", store=url).status == 0
    assert nebis("migrate", "print", "--pending", store=url).stdout == "-- Nothing is pending.\n"


@pytest.mark.parametrize("schema", [None, "Shop"])
def test_the_printed_script_is_what_apply_does_on_postgres(postgres_url: str, schema: str | None) -> None:
    option = [] if schema is None else ["--schema", schema]
    psql = [str(find_binaries() / "psql"), "--set=ON_ERROR_STOP=1", "--quiet", "--no-psqlrc", postgres_url]
    script = nebis("migrate", "print", *option, store=postgres_url).stdout

    told = subprocess.run(psql, input=script, capture_output=True, text=True, check=False)

    assert told.returncode == 0, told.stderr
    assert nebis("migrate", "verify", *option, store=postgres_url).status == 0


def go_back_to_the_first(url: str) -> None:
    """Undo by hand what came after the first migration."""
    with psycopg.connect(url) as connection:
        # What 0008 drops need not be there; what it adds must not.
        for name in ("record_fits_its_state", "record_opaque_is_dirty"):
            connection.execute(f"ALTER TABLE nebis_record DROP CONSTRAINT {name}".encode())
        connection.execute("DROP FUNCTION nebis_forget_details, nebis_forget_former_life CASCADE")
        connection.execute("DROP INDEX nebis_record_other_id")
        connection.execute("ALTER TABLE nebis_record ADD CONSTRAINT record_id_is_never_reused UNIQUE (record_id)")
        connection.execute(
            "ALTER TABLE nebis_effect ADD CONSTRAINT effect_belongs_to_record"
            " FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON DELETE CASCADE"
        )
        connection.execute("DROP TABLE nebis_attempt, nebis_counter, nebis_audit, nebis_late_result")
        connection.execute("DROP TABLE nebis_outbox, nebis_parked, nebis_offset, nebis_velocity")
        connection.execute("DROP FUNCTION nebis_refuse_rewriting")
        connection.execute("DELETE FROM nebis_migration WHERE name >= '0002'")


def test_only_what_is_pending_is_printed(postgres_url: str) -> None:
    nebis("migrate", "apply", store=postgres_url)
    go_back_to_the_first(postgres_url)

    script = nebis("migrate", "print", "--pending", store=postgres_url).stdout
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(script.encode())

    assert "nebis_attempt" in script
    assert "CREATE TABLE nebis_record" not in script
    assert nebis("migrate", "verify", store=postgres_url).status == 0


def test_apply_steps_back_while_a_transaction_uses_the_table(postgres_url: str) -> None:
    """F115: it waits in small portions, says so, and finishes when the table is free."""
    nebis("migrate", "apply", store=postgres_url)
    go_back_to_the_first(postgres_url)

    with psycopg.connect(postgres_url) as user:
        user.execute("LOCK TABLE nebis_record IN ROW EXCLUSIVE MODE")
        refused = nebis("migrate", "apply", "--wait", "0.3", store=postgres_url)
        process = start_nebis("migrate", "apply", store=postgres_url)
        assert process.stderr is not None
        assert "trying again in" in process.stderr.readline()
    stdout, _ = process.communicate(timeout=30)

    assert refused.status == 2
    assert "nothing was applied; find the transaction that stays open" in refused.stderr
    assert (process.returncode, stdout) == (0, "".join(f"applied {name}\n" for name in NAMES[1:]))


def test_a_role_that_may_not_create_tables_is_told_so(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")

    outcome = nebis("migrate", "apply", store=postgres_url.replace("nebis@", "reader@"))

    assert outcome.status == 2
    assert outcome.stderr.count("\n") == 1
    assert "permission denied for schema public" in outcome.stderr
