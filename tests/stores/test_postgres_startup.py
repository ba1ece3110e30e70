"""What is refused, and what is told, before anything is entrusted to a server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nebis.errors import ConfigError, NebisError, StoreUnavailable
from nebis.ports.store import Tier
from nebis.stores.sql.postgres.backend import examine, open_async, open_blocking
from nebis.stores.sql.postgres.failures import Unreachable
from nebis.stores.sql.postgres.startup import Primary
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.stores.postgres_ways import WAYS, ask, execute

SECRET = "p@ss/w%rd"
SCHEMES = ["postgresql", "postgresql+asyncpg"]


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[PostgresServer]:
    with PostgresServer(find_binaries(), password=SECRET) as server:
        yield server


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def _through(scheme: str, url: str) -> str:
    return f"{scheme}://{url.partition('://')[2]}"


def _opens(url: str, **options: Any) -> NebisError:
    with pytest.raises(NebisError) as caught:
        open_async(url, **options)
    assert SECRET not in str(caught.value)
    assert "p%40ss" not in str(caught.value)
    return caught.value


def _one_line(error: NebisError) -> str:
    assert isinstance(error, ConfigError)
    [fault] = error.faults
    assert "\n" not in fault
    return fault


def test_a_wrong_password_is_one_clear_line(scheme: str, guarded_server: PostgresServer) -> None:
    url = guarded_server.url().replace("p%40ss%2Fw%25rd", "p%40ss-wrong")

    fault = _one_line(_opens(_through(scheme, url)))

    assert "refuses the password of role 'nebis'" in fault
    assert "p@ss-wrong" not in fault


def test_a_missing_password_is_one_clear_line(scheme: str, guarded_server: PostgresServer) -> None:
    url = guarded_server.url().replace(":p%40ss%2Fw%25rd", "")

    assert "password of role 'nebis'" in _one_line(_opens(_through(scheme, url)))


def test_an_unknown_database_is_one_clear_line(scheme: str, guarded_server: PostgresServer) -> None:
    url = guarded_server.url("no such")

    assert "has no database 'no such'" in _one_line(_opens(_through(scheme, url)))


def test_an_unknown_role_is_one_clear_line(scheme: str, postgres_server: PostgresServer) -> None:
    url = postgres_server.url().replace("nebis@", "nobody:p%40ss@")

    assert "does not let role 'nobody' in" in _one_line(_opens(_through(scheme, url)))


def test_an_unknown_host_is_one_clear_line(scheme: str) -> None:
    fault = _one_line(_opens(f"{scheme}://nebis:p%40ss@no-such-host.invalid:5432/shop"))

    assert "the host of 'no-such-host.invalid:5432' is not known" in fault


def test_a_server_that_is_not_running_is_unavailable(scheme: str, guarded_server: PostgresServer) -> None:
    url = guarded_server.url()
    guarded_server.stop()

    error = _opens(_through(scheme, url))
    guarded_server.start()

    assert isinstance(error, StoreUnavailable)
    assert f"nothing listens at 127.0.0.1:{guarded_server.port}" in str(error)


@pytest.mark.parametrize("rest", ["nebis:p%zzss@127.0.0.1/shop", "nebis:p@ss/w%rd@127.0.0.1:x/shop"])
def test_a_url_that_cannot_be_read_is_not_repeated(scheme: str, rest: str) -> None:
    fault = _one_line(_opens(f"{scheme}://{rest}"))

    assert "percent-encode" in fault
    assert "zz" not in fault
    assert "w%rd" not in fault


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_healthy_server_gets_the_full_tier(scheme: str, postgres_server: PostgresServer) -> None:
    backend = open_async(_through(scheme, postgres_server.url()))

    capabilities = backend.store.capabilities

    assert capabilities.name == "postgres"
    assert capabilities.tier is Tier.FULL
    assert not any("off" in line for line in capabilities.assumptions)


def test_the_report_tells_who_the_server_is(postgres_server: PostgresServer) -> None:
    report = examine(postgres_server.url())

    [(identifier,)] = execute(postgres_server.url(), "SELECT system_identifier FROM pg_control_system()")
    assert report.version // 10_000 == postgres_server.version
    assert report.database == "postgres"
    assert report.timeline == 1
    assert report.system_identifier == identifier


def test_version_15_is_served_too(postgres15_server: PostgresServer, scheme: str) -> None:
    backend = open_async(_through(scheme, postgres15_server.url()))

    assert backend.store.capabilities.tier is Tier.FULL
    assert examine(postgres15_server.url()).version // 10_000 == 15


def test_an_older_version_is_refused(postgres_server: PostgresServer) -> None:
    report = replace(examine(postgres_server.url()), version=140011)

    assert report.faults() == ("PostgreSQL 14 is too old; use 15 or newer",)


@pytest.fixture
def careless_server() -> Iterator[PostgresServer]:
    settings = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    with PostgresServer(find_binaries(), settings=settings) as server:
        yield server


def test_a_careless_server_is_told_of_or_refused(careless_server: PostgresServer) -> None:
    url = careless_server.url()

    assumptions = open_blocking(url).store.capabilities.assumptions
    with pytest.raises(ConfigError) as caught:
        open_blocking(url, durability="strict")

    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        assert any(line.startswith(f"{setting} is off") for line in assumptions)
        assert any(fault.startswith(f"{setting} is off") for fault in caught.value.faults)


def test_a_replica_is_refused_and_served_once_it_is_promoted_f031(scheme: str) -> None:
    with PostgresServer(find_binaries()) as server:
        url = _through(scheme, server.url())
        server.stop()
        (Path(server._data) / "standby.signal").touch()
        server._process = server._spawn({})  # A standby never says that it is ready, so nothing waits for it.
        _wait_for_answers(server.url())

        refused = _one_line(_opens(url))
        execute(server.url(), "SELECT pg_promote()")
        report = examine(url)

    assert "this server is a replica" in refused
    assert report.timeline == 2


def _wait_for_answers(url: str) -> None:
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            continue
        return


def test_a_former_primary_is_refused_f030() -> None:
    primary = Primary()
    primary.accept(is_replica=False, system_identifier=1, timeline=2)

    with pytest.raises(Unreachable, match="former primary"):
        primary.accept(is_replica=False, system_identifier=1, timeline=1)
    with pytest.raises(Unreachable, match="another database cluster"):
        primary.accept(is_replica=False, system_identifier=2, timeline=3)

    primary.accept(is_replica=False, system_identifier=None, timeline=3)
    with pytest.raises(Unreachable, match="another database cluster"):
        primary.accept(is_replica=False, system_identifier=2, timeline=3)


@pytest.mark.parametrize("way", WAYS)
def test_a_role_that_may_not_read_the_control_file_is_served(way: str, postgres_url: str) -> None:
    execute(postgres_url, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    execute(postgres_url, "DROP ROLE IF EXISTS humble")
    execute(postgres_url, "CREATE ROLE humble LOGIN")
    sessions = WAYS[way](postgres_url.replace("nebis@", "humble@"))

    rows = sessions.run(ask("SELECT current_user::text"))
    sessions.close()

    assert rows == [("humble",)]
