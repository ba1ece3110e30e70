"""Access to the file: by threads, by an event loop, and across forks."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nebis.core.answers import Granted
from nebis.flow import Flow
from nebis.ports.store import BlockingBackend, DefiniteFailure
from nebis.stores.sql.asks import Begin, Query
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.sqlite import open_async
from nebis.stores.sql.sqlite import sessions as sessions_module
from nebis.testing.conformance.specimens import START_US, claim
from tests.stores.sql_backends import opened_sqlite, sqlite_url


def in_child(work: Callable[[], bool]) -> bool:
    """Fork, do the work in the child, and say whether it went well there."""
    pid = os.fork()
    if pid == 0:
        went_well = False
        try:
            went_well = work()
        finally:
            os._exit(0 if went_well else 1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def granted(backend: BlockingBackend, key: str) -> bool:
    (answer,) = backend.sessions.run(backend.store.apply([claim(key)], now=START_US))
    return isinstance(answer, Granted)


def test_threads_share_one_connection_and_none_is_refused(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path, busy_seconds=0.01)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: granted(backend, str(number)), range(200)))

    backend.sessions.close()
    assert all(answers)


def test_parent_and_child_both_go_on_after_a_fork_f094(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)
    assert granted(backend, "before")

    assert in_child(
        lambda: (
            granted(backend, "child") and backend.sessions.run(backend.store.find(claim("before").identity)) is not None
        )
    )

    assert granted(backend, "parent")
    assert backend.sessions.run(backend.store.find(claim("child").identity)) is not None
    backend.sessions.close()


def test_a_parent_that_closes_takes_nothing_from_its_child_f094(tmp_path: Path) -> None:
    """With an inherited file the parent would fold in and delete a log that the child is still writing to."""
    backend = opened_sqlite(tmp_path)
    backend.sessions.close()

    def parent_closes_while_child_writes() -> bool:
        assert granted(backend, "parent")
        has_written, has_closed = os.pipe(), os.pipe()
        if os.fork() == 0:
            wrote = granted(backend, "first")
            os.write(has_written[1], b".")
            os.read(has_closed[0], 1)
            os._exit(0 if wrote and granted(backend, "second") else 1)
        os.read(has_written[0], 1)
        backend.sessions.close()
        os.write(has_closed[1], b".")
        return os.waitstatus_to_exitcode(os.wait()[1]) == 0

    assert in_child(parent_closes_while_child_writes)

    for key in ("parent", "first", "second"):
        assert backend.sessions.run(backend.store.find(claim(key).identity)) is not None
    backend.sessions.close()


def test_a_child_of_a_process_in_a_transaction_refuses_f094(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path, busy_seconds=0.05)
    assert backend.transaction is not None
    transaction = backend.transaction(None)
    transaction.begin()

    def is_refused() -> bool:
        try:
            granted(backend, "child")
        except DefiniteFailure as failure:
            return "forked with the database open" in failure.detail
        return False

    assert in_child(is_refused)

    transaction.rollback()
    assert granted(backend, "parent")
    backend.sessions.close()


def test_a_fork_past_python_is_noticed_f094(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened_sqlite(tmp_path)
    monkeypatch.setattr(sessions_module._forks, "pid", os.getpid() - 1)

    with pytest.raises(DefiniteFailure, match="forked with the database open"):
        granted(backend, "key")

    monkeypatch.undo()
    backend.sessions.close()


def test_a_flow_that_ends_in_the_middle_leaves_no_transaction(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)

    def careless() -> Flow[None]:
        yield from Begin()
        yield from Query(sqlite_dialect().statements.offer_secret, {"candidate": b"x" * 32})

    backend.sessions.run(careless())

    assert backend.sessions.run(backend.store.secrets(None)).generated is None
    backend.sessions.close()


def test_the_heartbeat_has_a_connection_of_its_own(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)
    beat = backend.beat()
    reached, leave = threading.Event(), threading.Event()

    def slow() -> Flow[None]:
        yield from Query(sqlite_dialect().statements.clock)
        reached.set()
        leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(backend.sessions.run, slow())
        reached.wait(10)
        (answer,) = beat.run(backend.store.apply([claim()], now=START_US))
        leave.set()

    beat.close()
    backend.sessions.close()
    assert isinstance(answer, Granted)


def test_a_cancelled_caller_leaves_and_its_write_goes_on(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()

    async def scenario() -> bool:
        backend = open_async(sqlite_url(tmp_path))
        hold = threading.Event()

        def slow() -> Flow[None]:
            yield from Query(sqlite_dialect().statements.clock)
            hold.wait(10)

        first = asyncio.create_task(backend.sessions.run(slow()))
        second = asyncio.create_task(backend.sessions.run(backend.store.apply([claim()], now=START_US)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        hold.set()
        await first
        found = await backend.sessions.run(backend.store.find(claim().identity))
        await backend.sessions.close()
        return found is not None

    assert asyncio.run(scenario())


def test_nothing_is_left_open_after_close(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)
    assert backend.transaction is not None
    transaction = backend.transaction(None)
    transaction.begin()
    transaction.commit()

    backend.sessions.close()

    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["nebis.db"]
