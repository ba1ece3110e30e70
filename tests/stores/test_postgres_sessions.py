"""Sessions of all three drivers on a real server, with statements of their own."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from nebis.errors import MisuseError
from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, DefiniteFailure, RowLocked, Spoilt
from nebis.stores import open_blocking
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row
from nebis.stores.sql.postgres.failures import Unreachable
from tests.engines.postgres import PostgresServer
from tests.stores.postgres_ways import WAYS, Way, ask, ask_in_transaction, async_access, execute, statement


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture
def url(postgres_url: str) -> str:
    execute(postgres_url, "CREATE TABLE scratch (id bigint PRIMARY KEY CHECK (id <> 13), body bytea)")
    return postgres_url


@pytest.fixture
def sessions(way: Way, url: str) -> Iterator[BlockingSessions]:
    opened = way(url)
    yield opened
    opened.close()


def _ids(url: str) -> list[int]:
    return [row[0] for row in execute(url, "SELECT id FROM scratch ORDER BY id")]


def test_a_statement_binds_by_name_and_returns_plain_tuples(sessions: BlockingSessions) -> None:
    rows = sessions.run(ask("SELECT :b::text, :a::bigint, :c::bytea, :a::bigint, '50%', NULL", a=7, b="x", c=b"\0y"))

    assert rows == [("x", 7, b"\0y", 7, "50%", None)]
    assert type(rows[0]) is tuple


def test_a_statement_without_parameters_keeps_its_percent_sign(sessions: BlockingSessions) -> None:
    assert sessions.run(ask("SELECT '50%'::text")) == [("50%",)]


def test_members_are_bound_as_one_array_for_each_column(sessions: BlockingSessions, url: str) -> None:
    insert = statement(
        "INSERT INTO scratch SELECT member.id + :shift::bigint, member.body "
        "FROM unnest(:id::bigint[], :body::bytea[]) AS member (id, body) RETURNING id"
    )
    members: list[dict[str, object]] = [
        {"id": 1, "body": b"\xff"},
        {"id": 2**40, "body": None},
        {"id": 2, "body": b"", "unused": 1},
    ]

    def flow() -> Flow[list[Row]]:
        return (yield from Query(insert, {"shift": 10}, members))

    rows = sessions.run(flow())

    assert sorted(rows) == [(11,), (12,), (2**40 + 10,)]
    assert execute(url, "SELECT body FROM scratch ORDER BY id") == [(b"\xff",), (b"",), (None,)]


def test_a_transaction_commits(sessions: BlockingSessions, url: str) -> None:
    sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)", "INSERT INTO scratch VALUES (2)"))

    assert _ids(url) == [1, 2]


def test_a_refused_statement_rolls_the_transaction_back(sessions: BlockingSessions, url: str) -> None:
    with pytest.raises(Spoilt, match="scratch_id_check") as caught:
        sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)", "INSERT INTO scratch VALUES (13)"))

    assert caught.value.__cause__ is None
    assert _ids(url) == []
    assert sessions.run(ask("SELECT 1")) == [(1,)]


def test_a_flow_that_raises_inside_its_transaction_is_rolled_back(sessions: BlockingSessions, url: str) -> None:
    def flow() -> Flow[None]:
        yield from Begin()
        yield from Query(statement("INSERT INTO scratch VALUES (1)"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sessions.run(flow())

    assert _ids(url) == []
    sessions.run(ask("INSERT INTO scratch VALUES (2)"))
    assert _ids(url) == [2]


def test_a_flow_that_leaves_its_transaction_open_is_rolled_back_and_told(sessions: BlockingSessions, url: str) -> None:
    def flow() -> Flow[None]:
        yield from Begin()
        yield from Query(statement("INSERT INTO scratch VALUES (1)"))

    with pytest.raises(MisuseError, match="Commit or Rollback"):
        sessions.run(flow())

    assert _ids(url) == []


def test_a_flow_may_go_on_after_a_refusal_and_a_rollback(sessions: BlockingSessions, url: str) -> None:
    def flow() -> Flow[None]:
        yield from Begin()
        try:
            yield from Query(statement("INSERT INTO scratch VALUES (13)"))
        except DefiniteFailure:
            yield from Rollback()
        yield from Query(statement("INSERT INTO scratch VALUES (14)"))

    sessions.run(flow())

    assert _ids(url) == [14]


def test_committing_a_failed_transaction_is_no_success(sessions: BlockingSessions, url: str) -> None:
    """The server answers ROLLBACK to that COMMIT, and calls it no error."""

    def flow() -> Flow[None]:
        yield from Begin()
        yield from Query(statement("INSERT INTO scratch VALUES (1)"))
        try:
            yield from Query(statement("INSERT INTO scratch VALUES (13)"))
        except DefiniteFailure:
            yield from Commit()

    with pytest.raises(DefiniteFailure, match="rolled back"):
        sessions.run(flow())

    assert _ids(url) == []


def test_somebody_elses_lock_is_row_locked_after_the_lock_timeout_f045(way: Way, url: str) -> None:
    execute(url, "INSERT INTO scratch VALUES (1)")
    sessions = way(url, lock_timeout_seconds=0.05)
    with psycopg.connect(url) as other:
        other.execute("UPDATE scratch SET body = 'x' WHERE id = 1")

        with pytest.raises(RowLocked, match="55P03"):
            sessions.run(ask("UPDATE scratch SET body = 'y' WHERE id = 1"))

    sessions.run(ask("UPDATE scratch SET body = 'y' WHERE id = 1"))
    sessions.close()
    assert execute(url, "SELECT body FROM scratch") == [(b"y",)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_memoize", "off"),
        ("jit", "off"),
        ("lock_timeout", "500ms"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("transaction_isolation", "read committed"),
        ("synchronous_commit", "on"),
        ("application_name", "nebis"),
    ],
)
def test_our_own_sessions_are_pinned_whatever_the_role_says(
    sessions: BlockingSessions, url: str, name: str, value: str
) -> None:
    database = url.rpartition("/")[2]
    for setting in (
        "default_transaction_isolation = 'repeatable read'",
        "synchronous_commit = off",
        "lock_timeout = 0",
    ):
        execute(url, f"ALTER DATABASE {database} SET {setting}")

    assert sessions.run(ask(f"SELECT current_setting('{name}')")) == [(value,)]
    assert sessions.run(ask_in_transaction(f"SELECT current_setting('{name}')")) == [(value,)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("lock_timeout", "500ms"), ("transaction_isolation", "read committed"), ("synchronous_commit", "on")],
)
def test_behind_a_pooler_each_transaction_makes_its_own_settings_f044(
    way: Way, url: str, name: str, value: str
) -> None:
    database = url.rpartition("/")[2]
    for setting in (
        "default_transaction_isolation = 'repeatable read'",
        "synchronous_commit = off",
        "lock_timeout = 0",
    ):
        execute(url, f"ALTER DATABASE {database} SET {setting}")
    sessions = way(url, pooler=True)

    alone = sessions.run(ask(f"SELECT current_setting('{name}')"))
    inside = sessions.run(ask_in_transaction(f"SELECT current_setting('{name}')"))
    plans = sessions.run(ask("SELECT current_setting('plan_cache_mode')"))
    sessions.close()

    assert alone == inside == [(value,)]
    assert plans == [("auto",)]


def test_behind_a_pooler_nothing_is_prepared_f044(way: Way, url: str) -> None:
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%marker%'"
    counts = {}
    for pooler in (False, True):
        sessions = way(url, pooler=pooler, max_connections=1)
        for _ in range(7):
            sessions.run(ask("SELECT :a::bigint AS marker", a=1))
        counts[pooler] = sessions.run(ask(prepared))[0][0]
        sessions.close()

    assert counts[False] >= 1
    assert counts[True] == 0


def test_a_statement_is_refused_behind_a_pooler_without_leaving_anything(way: Way, url: str) -> None:
    sessions = way(url, pooler=True)

    with pytest.raises(DefiniteFailure, match="scratch_id_check"):
        sessions.run(ask("INSERT INTO scratch VALUES (13)"))
    sessions.run(ask("INSERT INTO scratch VALUES (14)"))
    sessions.close()

    assert _ids(url) == [14]


@pytest.mark.parametrize(("text", "value"), [("SELECT :a::text", "a\0b"), ("SELECT :a::bigint", "no number")])
def test_a_value_that_fits_nowhere_is_definite_and_costs_no_connection(
    sessions: BlockingSessions, text: str, value: str
) -> None:
    before = sessions.run(ask("SELECT pg_backend_pid()"))

    with pytest.raises(DefiniteFailure) as caught:
        sessions.run(ask(text, a=value))

    assert value not in str(caught.value)

    assert sessions.run(ask("SELECT pg_backend_pid()")) == before


def test_one_connection_is_kept_and_used_again(sessions: BlockingSessions) -> None:
    pids = {sessions.run(ask("SELECT pg_backend_pid()"))[0][0] for _ in range(5)}

    assert len(pids) == 1


def test_when_all_connections_are_busy_the_caller_learns_it_in_time(url: str) -> None:
    sessions = WAYS["psycopg"](url, max_connections=1, acquire_timeout_seconds=0.05)

    def flow() -> Flow[None]:
        yield from Query(statement("SELECT 1"))
        with pytest.raises(Unreachable, match="all 1 connections are busy"):
            sessions.run(ask("SELECT 1"))

    sessions.run(flow())
    sessions.close()


@pytest.mark.parametrize("name", ["psycopg-async", "asyncpg"])
def test_connections_that_come_back_go_to_whoever_waited_longest_and_stays(name: str, url: str) -> None:
    async def main() -> list[str]:
        sessions = async_access(name, url, max_connections=1)
        ends: list[str] = []

        async def run(who: str, text: str) -> None:
            await sessions.run_unshielded(ask(text))
            ends.append(who)

        first = asyncio.create_task(run("first", "SELECT pg_sleep(0.2)"))
        await asyncio.sleep(0)
        others = [asyncio.create_task(run(who, "SELECT 1")) for who in ("leaves", "second", "third")]
        await asyncio.sleep(0.05)
        others.pop(0).cancel()
        await asyncio.gather(first, *others)
        await run("fourth", "SELECT 1")
        await sessions.close()
        return ends

    assert asyncio.run(main()) == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("name", ["psycopg-async", "asyncpg"])
def test_on_an_event_loop_too_the_caller_learns_in_time_that_all_are_busy(name: str, url: str) -> None:
    async def main() -> None:
        sessions = async_access(name, url, max_connections=1, acquire_timeout_seconds=0.05)
        busy = asyncio.create_task(sessions.run(ask("SELECT pg_sleep(0.3)")))
        await asyncio.sleep(0.1)
        with pytest.raises(Unreachable, match="all 1 connections are busy"):
            await sessions.run(ask("SELECT 1"))
        await busy
        assert await sessions.run(ask("SELECT 1::bigint")) == [(1,)]
        await sessions.close()

    asyncio.run(main())


def test_a_statement_whose_table_was_changed_meanwhile_is_prepared_again(url: str) -> None:
    sessions = WAYS["asyncpg"](url)

    def read() -> list[Row]:
        return sessions.run(ask("SELECT * FROM scratch WHERE id = :id::bigint", id=1))

    sessions.run(ask("INSERT INTO scratch VALUES (1)"))
    assert [read(), read()] == [[(1, None)]] * 2
    execute(url, "ALTER TABLE scratch ADD COLUMN more bigint DEFAULT 7")

    assert [read(), read()] == [[(1, None, 7)]] * 2
    sessions.close()


def test_after_closing_nothing_is_opened_again(way: Way, url: str) -> None:
    sessions = way(url)
    sessions.run(ask("SELECT 1"))
    backends = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{url.rpartition('/')[2]}'"

    sessions.close()

    # The server ends a session when it reads our farewell, a moment after we sent it.
    while execute(url, backends) != [(1,)]:
        pass


def test_a_connection_that_comes_back_inside_a_transaction_is_not_lent_again_f024(way: Way, url: str) -> None:
    sessions = way(url, max_connections=1)
    [(first,)] = sessions.run(ask("SELECT pg_backend_pid()"))
    # A statement may open a transaction behind our back.
    sessions.run(ask("BEGIN"))

    [(second,)] = sessions.run(ask("SELECT pg_backend_pid()"))
    sessions.run(ask("INSERT INTO scratch VALUES (1)"))
    sessions.close()

    assert first != second
    assert _ids(url) == [1]


@pytest.mark.parametrize("server", ["postgres_server", "postgres15_server"])
def test_the_store_itself_works_through_every_way_on_every_version(
    way: Way, server: str, request: pytest.FixtureRequest
) -> None:
    running: PostgresServer = request.getfixturevalue(server)
    url = running.create_database()
    store = open_blocking(url).store
    sessions = way(url)

    applied = sessions.run(store.migrate())
    sessions.run(store.verify())
    counts = sessions.run(store.count())
    with pytest.raises(DefiniteFailure):
        sessions.run(ask_in_transaction("INSERT INTO nebis_meta VALUES ('x', 'y')", "SELECT 1/0"))
    left = sessions.run(ask("SELECT count(*) FROM nebis_meta WHERE name = 'x'"))
    sessions.close()
    running.drop_database(url)

    assert applied
    assert set(counts.by_state.values()) == {0}
    assert left == [(0,)]
