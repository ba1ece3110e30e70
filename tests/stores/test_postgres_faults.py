"""What sessions say and do when servers die, links break and callers give up."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, DefiniteFailure, IndefiniteFailure, StoreFailure
from nebis.stores.sql.asks import Query, Row
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.engines.proxy import FaultProxy
from tests.stores.postgres_ways import WAYS, Way, ask, ask_in_transaction, async_access, execute, statement

ASYNC_WAYS = ["psycopg-async", "asyncpg"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(find_binaries()) as server:
        yield server


@pytest.fixture
def own_url(own_server: PostgresServer) -> str:
    url = own_server.create_database()
    execute(url, "CREATE TABLE scratch (id bigint PRIMARY KEY, body bytea)")
    return url


@pytest.fixture
def url(postgres_url: str) -> str:
    execute(postgres_url, "CREATE TABLE scratch (id bigint PRIMARY KEY, body bytea)")
    return postgres_url


@pytest.fixture
def proxy(url: str) -> Iterator[FaultProxy]:
    with FaultProxy.before(url) as proxy:
        yield proxy


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


def _ids(url: str) -> list[int]:
    return [row[0] for row in execute(url, "SELECT id FROM scratch ORDER BY id")]


def _wait_until(url: str, condition: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(condition.encode()).fetchone() != (True,):
            pass


def _failure(outcome: Future[object]) -> type[BaseException] | None:
    error = outcome.exception(timeout=30)
    return None if error is None else type(error)


SLEEPING = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND wait_event = 'PgSleep')"


def test_a_server_that_dies_in_a_statement_leaves_it_indefinite_and_is_used_again_when_back(
    way: Way, own_server: PostgresServer, own_url: str, thread: ThreadPoolExecutor
) -> None:
    sessions = way(own_url)
    outcome: Future[object] = thread.submit(sessions.run, ask("SELECT pg_sleep(60)"))
    _wait_until(own_url, SLEEPING)

    own_server.crash()

    assert _failure(outcome) is IndefiniteFailure
    with pytest.raises(DefiniteFailure, match="nothing listens"):
        sessions.run(ask("SELECT 1"))
    own_server.start()
    assert sessions.run(ask("SELECT 1")) == [(1,)]
    sessions.close()


def test_a_restart_of_the_server_is_not_noticed_by_whoever_comes_after_it(
    way: Way, own_server: PostgresServer, own_url: str
) -> None:
    """Idle connections that died are replaced one and all, before anything is sent on them."""
    sessions = way(own_url, lock_timeout_seconds=60)
    _keep_idle(sessions, own_url, 3)

    own_server.restart()

    for _ in range(5):
        assert sessions.run(ask("SELECT 1")) == [(1,)]
    sessions.close()


def _keep_idle(sessions: BlockingSessions, url: str, count: int) -> None:
    """Use several connections at once, so that as many are idle afterwards."""
    with psycopg.connect(url, autocommit=True) as gate, ThreadPoolExecutor(max_workers=count) as executor:
        gate.execute("SELECT pg_advisory_lock(1)")
        uses = [
            executor.submit(sessions.run, ask("SELECT pg_advisory_xact_lock_shared(1)::text")) for _ in range(count)
        ]
        _wait_until(url, f"SELECT count(*) = {count} FROM pg_stat_activity WHERE wait_event = 'advisory'")
        gate.execute("SELECT pg_advisory_unlock(1)")
        for use in uses:
            use.result()


MARKER = b"nebis-marker"
INSERT_MARKER = "INSERT INTO scratch (id, body) VALUES (1, :body::bytea)"

CUTS: dict[str, tuple[str, bytes, Callable[[], Flow[list[Row]]], list[int]]] = {
    "before-commit": ("cut_before", b"COMMIT", lambda: ask_in_transaction("INSERT INTO scratch VALUES (1)"), []),
    "after-commit": ("cut_reply_after", b"COMMIT", lambda: ask_in_transaction("INSERT INTO scratch VALUES (1)"), [1]),
    # Values travel apart from the text, which drivers send ahead to have it parsed.
    "before-lone-statement": ("cut_before", MARKER, lambda: ask(INSERT_MARKER, body=MARKER), []),
    "after-lone-statement": ("cut_reply_after", MARKER, lambda: ask(INSERT_MARKER, body=MARKER), [1]),
}


@pytest.mark.parametrize("where", CUTS)
def test_a_link_that_is_cut_around_the_commit_leaves_it_indefinite_f012_f013(
    way: Way, url: str, proxy: FaultProxy, where: str
) -> None:
    cut, pattern, flow, kept = CUTS[where]
    sessions = way(proxy.url(url))
    sessions.run(ask("SELECT 1"))
    setattr(proxy, cut, pattern)

    with pytest.raises(IndefiniteFailure) as caught:
        sessions.run(flow())

    assert caught.value.__cause__ is None
    assert proxy.was_cut.is_set()
    assert sessions.run(ask("SELECT 1")) == [(1,)]
    assert _ids(url) == kept
    sessions.close()


@pytest.mark.parametrize("cut", ["cut_before", "cut_reply_after"])
def test_a_link_that_is_cut_before_any_commit_was_sent_is_definite(
    way: Way, url: str, proxy: FaultProxy, cut: str
) -> None:
    sessions = way(proxy.url(url))
    sessions.run(ask("SELECT 1"))
    setattr(proxy, cut, b"INSERT")

    with pytest.raises(DefiniteFailure):
        sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)"))

    assert sessions.run(ask("SELECT 1")) == [(1,)]
    assert _ids(url) == []
    sessions.close()


def test_a_reset_of_every_link_is_not_noticed_by_whoever_comes_after_it(way: Way, url: str, proxy: FaultProxy) -> None:
    sessions = way(proxy.url(url))
    sessions.run(ask("SELECT 1"))

    proxy.reset_all()

    assert sessions.run(ask("SELECT 1")) == [(1,)]
    sessions.close()


def test_a_login_that_nobody_answers_is_definite_and_short(way: Way, url: str, proxy: FaultProxy) -> None:
    proxy.swallow()
    sessions = way(proxy.url(url), connect_timeout_seconds=1)

    with pytest.raises(DefiniteFailure, match="did not answer within 1 s"):
        sessions.run(ask("SELECT 1"))

    proxy.flow()
    assert sessions.run(ask("SELECT 1")) == [(1,)]
    sessions.close()


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_commit_that_no_longer_waits_for_its_standby_is_indefinite_f017(
    way: Way, own_server: PostgresServer, own_url: str, thread: ThreadPoolExecutor, in_transaction: bool
) -> None:
    sessions = way(own_url)
    sessions.run(ask("SELECT 1"))
    own_server.restart(settings={"synchronous_standby_names": "nobody"})
    flow = (ask_in_transaction if in_transaction else ask)("INSERT INTO scratch VALUES (1)")
    outcome: Future[object] = thread.submit(sessions.run, flow)
    _wait_until(own_url, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')")

    execute(own_url, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

    assert _failure(outcome) is IndefiniteFailure
    assert "standby" in str(outcome.exception())
    own_server.restart()
    assert _ids(own_url) == [1]
    sessions.close()


@pytest.mark.parametrize("name", ASYNC_WAYS)
def test_cancelling_the_caller_in_its_commit_only_detaches_it_f017(name: str, url: str, proxy: FaultProxy) -> None:
    async def scenario() -> None:
        sessions = async_access(name, proxy.url(url))
        await sessions.run(ask("SELECT 1"))
        proxy.swallow_at = b"COMMIT"
        caller = asyncio.create_task(sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)")))
        await asyncio.to_thread(proxy.was_swallowed.wait)

        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert _ids(url) == []
        proxy.flow()
        await sessions.close()

    asyncio.run(scenario())

    assert _ids(url) == [1]


@pytest.mark.parametrize("name", ASYNC_WAYS)
def test_a_detached_flow_that_fails_disturbs_nobody(name: str, url: str, proxy: FaultProxy) -> None:
    complaints: list[dict[str, object]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        sessions = async_access(name, proxy.url(url))
        await sessions.run(ask("SELECT 1"))
        proxy.swallow_at = b"COMMIT"
        caller = asyncio.create_task(sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)")))
        await asyncio.to_thread(proxy.was_swallowed.wait)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        proxy.reset_all()
        await sessions.close()

    asyncio.run(scenario())

    assert complaints == []
    assert _ids(url) == []


@pytest.mark.parametrize("name", ASYNC_WAYS)
@pytest.mark.parametrize("whom", ["caller", "flow"])
def test_no_cancellation_lets_an_answer_reach_somebody_else_f023(
    name: str, whom: str, url: str, proxy: FaultProxy
) -> None:
    """The flow itself is only cancelled when its loop shuts down; even then its connection is never used again."""

    async def scenario() -> int:
        sessions = async_access(name, proxy.url(url), max_connections=2)
        cancelled = 0
        for number in range(150):
            proxy.latency_seconds = (number % 5) / 2000
            caller = asyncio.create_task(sessions.run(ask("SELECT :token::bigint", token=-number)))
            for _ in range(number % 7):
                await asyncio.sleep(0.0005)
            if whom == "caller":
                caller.cancel()
            else:
                for task in list(sessions._tasks):  # type: ignore[attr-defined]
                    task.cancel()
            answers = await asyncio.gather(
                caller, sessions.run(ask("SELECT :token::bigint", token=number)), return_exceptions=True
            )
            cancelled += isinstance(answers[0], asyncio.CancelledError)
            assert isinstance(answers[0], asyncio.CancelledError) or answers[0] == [(-number,)]
            assert answers[1] == [(number,)]
        await sessions.close()
        return cancelled

    assert asyncio.run(scenario()) > 30


@pytest.mark.parametrize("name", ASYNC_WAYS)
def test_a_flow_that_is_cancelled_in_a_statement_gives_its_connection_up_f023(name: str, own_url: str) -> None:
    async def scenario() -> tuple[int, int]:
        sessions = async_access(name, own_url, max_connections=1)
        [(before,)] = await sessions.run(ask("SELECT pg_backend_pid()"))
        caller = asyncio.create_task(sessions.run(ask("SELECT pg_sleep(60)")))
        await asyncio.to_thread(_wait_until, own_url, SLEEPING)
        for task in list(sessions._tasks):  # type: ignore[attr-defined]
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        [(after,)] = await sessions.run(ask("SELECT pg_backend_pid()"))
        await sessions.close()
        return before, after

    before, after = asyncio.run(scenario())

    assert before != after


def test_an_interrupted_thread_gives_its_connection_up_f023(url: str) -> None:
    sessions = WAYS["psycopg"](url, max_connections=1)
    [(before,)] = sessions.run(ask("SELECT pg_backend_pid()"))

    def flow() -> Flow[None]:
        yield from Query(statement("SELECT 1"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sessions.run(flow())
    [(between,)] = sessions.run(ask("SELECT pg_backend_pid()"))
    with pytest.raises(IndefiniteFailure):
        sessions.run(ask("SELECT pg_terminate_backend(pg_backend_pid())"))
    [(after,)] = sessions.run(ask("SELECT pg_backend_pid()"))
    sessions.close()

    assert before == between  # Raised between two statements, it leaves the connection idle.
    assert after != before


def test_a_driver_exception_never_escapes(way: Way, url: str) -> None:
    sessions = way(url)
    for text in (
        "SELECT nonsense",
        "SELECT 1/0",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ):
        with pytest.raises(StoreFailure):
            sessions.run(ask(text))
    assert sessions.run(ask("SELECT 1")) == [(1,)]
    sessions.close()


FORKING = """
import os, sys
from tests.stores.postgres_ways import WAYS, ask, route
from nebis.stores.sql.postgres.asyncpg_access import AsyncpgAccess
url, way = sys.argv[1:]
sessions = WAYS[way](url) if way in WAYS else AsyncpgAccess(route(url)).direct_sessions()
def backend():
    return sessions.run(ask("SELECT pg_backend_pid()"))[0][0]
before = backend()
child = os.fork()
if child == 0:
    assert backend() != before, "the child uses its parent's connection"
    sessions.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert backend() == before, "the child ended its parent's connection"
sessions.close()
"""


@pytest.mark.parametrize("name", ["psycopg", "asyncpg-beat"])
def test_a_forked_child_opens_connections_of_its_own_f094(name: str, url: str) -> None:
    root = Path(__file__).parents[2]

    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, url, name],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert outcome.returncode == 0, outcome.stderr
