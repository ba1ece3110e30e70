"""Batches on an event loop: it runs their statements, and what may have to wait is done by a thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nebis.core.answers import Granted, Kept, Running
from nebis.core.record import Outcome, OutcomeKind
from nebis.flow import Ask, Flow
from nebis.ports.store import AsyncBackend, DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt
from nebis.stores.sql.asks import Query
from nebis.stores.sql.at_once import FEWEST
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.sqlite import eventloop, open_async
from nebis.stores.sql.sqlite.backend import JournalWish
from nebis.stores.sql.sqlite.connection import Connection
from nebis.testing.conformance.specimens import START_US, claim, complete
from tests.stores.sql_backends import opened_sqlite, sqlite_url

Scenario = Callable[[AsyncBackend], Awaitable[Any]]

CLOCK = sqlite_dialect().statements.clock


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Return what was asked of connections, and whether that was on the main thread."""
    asked: list[tuple[str, bool]] = []
    perform = Connection.perform

    def noted(connection: Connection, ask: Ask[Any]) -> Any:
        asked.append((type(ask).__name__, threading.current_thread() is threading.main_thread()))
        return perform(connection, ask)

    monkeypatch.setattr(Connection, "perform", noted)
    return asked


def on_loop(
    tmp_path: Path, scenario: Scenario, *, busy_seconds: float = 5.0, journal: JournalWish = "wal", rounds: int = 1
) -> Any:
    """Perform the scenario with a store that is open already, on a loop of its own each time."""
    opened_sqlite(tmp_path).sessions.close()
    backend = open_async(sqlite_url(tmp_path), busy_seconds=busy_seconds, journal=journal)

    async def performing() -> Any:
        await backend.sessions.run(backend.store.clock())
        result = await scenario(backend)
        await backend.sessions.close()
        return result

    return [asyncio.run(performing()) for _ in range(rounds)][-1]


def batch(backend: AsyncBackend, *keys: str, **changes: Any) -> Awaitable[list[Any]]:
    verbs = [claim(key, **changes) for key in keys]
    return backend.sessions.run_unshielded(backend.store.apply(verbs, now=START_US))


async def is_there(backend: AsyncBackend, key: str) -> bool:
    return await backend.sessions.run(backend.store.find(claim(key).identity)) is not None


def test_the_loop_runs_the_statements_and_the_thread_commits(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        performed.clear()
        return list(await batch(backend, "one", "two"))

    answers = on_loop(tmp_path, scenario)

    assert all(isinstance(answer, Granted) for answer in answers)
    assert performed == [("Begin", True), ("Query", True), ("Commit", False)]


def test_a_batch_that_only_reads_needs_no_thread(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        [granted] = await batch(backend, "key")
        verbs = [complete(granted.record.ownership)]
        await backend.sessions.run_unshielded(backend.store.apply(verbs, now=START_US))
        performed.clear()
        await batch(backend, "key", by="somebody else")

    on_loop(tmp_path, scenario)

    assert performed == [("Query", True)]


def test_batches_that_come_during_a_commit_wait_for_the_loop(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        performed.clear()
        await asyncio.gather(*(batch(backend, key) for key in "abc"))

    on_loop(tmp_path, scenario)

    assert performed == [("Begin", True), ("Query", True), ("Commit", False)] * 3


def test_a_batch_behind_other_work_of_the_thread_goes_there_whole(
    tmp_path: Path, performed: list[tuple[str, bool]]
) -> None:
    """Otherwise a thread that is never idle would keep batches waiting for good."""

    async def scenario(backend: AsyncBackend) -> None:
        hold = threading.Event()

        def slow() -> Flow[None]:
            yield from Query(CLOCK)
            hold.wait(10)

        other = asyncio.create_task(backend.sessions.run(slow()))
        await asyncio.sleep(0)
        performed.clear()
        waiting = batch(backend, "key")
        hold.set()
        await waiting
        await other

    on_loop(tmp_path, scenario)

    assert not any(is_main for _, is_main in performed)
    assert performed[-1] == ("Commit", False)


def test_a_file_that_others_keep_locked_does_not_hold_up_the_loop_f042(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(batch(backend, "key"))
        turns = 0
        while turns < 50:
            await asyncio.sleep(0.001)
            turns += 1
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        return await waiting

    [answer] = on_loop(tmp_path, scenario, busy_seconds=30)

    assert isinstance(answer, Granted)


def test_a_file_that_stays_locked_is_told_and_usable_later_f042(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RowLocked):
            await batch(backend, "key")
        other.execute("ROLLBACK")
        other.close()
        return await batch(backend, "key")

    [answer] = on_loop(tmp_path, scenario, busy_seconds=0.02)

    assert isinstance(answer, Granted)


def test_a_batch_that_is_cancelled_before_its_turn_is_not_performed(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> tuple[bool, bool, bool]:
        first = asyncio.ensure_future(batch(backend, "first"))
        second = asyncio.ensure_future(batch(backend, "second"))
        third = asyncio.ensure_future(batch(backend, "third"))
        # Its statements have run, its commit is under way: it goes on to its end.
        first.cancel()
        second.cancel()
        await third
        return await is_there(backend, "first"), await is_there(backend, "second"), await is_there(backend, "third")

    assert on_loop(tmp_path, scenario) == (True, False, True)


def test_what_is_refused_is_told_and_leaves_no_transaction(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> tuple[bool, list[Any]]:
        with pytest.raises(Spoilt):
            await batch(backend, "fine", "spoilt", nonce=b"short")
        return await is_there(backend, "fine"), await batch(backend, "fine")

    was_there, [answer] = on_loop(tmp_path, scenario)

    assert not was_there
    assert isinstance(answer, Granted)


def test_a_commit_that_is_refused_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Connection) -> None:
        raise DefiniteFailure("not today")

    async def scenario(backend: AsyncBackend) -> tuple[bool, list[Any]]:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_commit", refuse)
            with pytest.raises(DefiniteFailure, match="not today"):
                await batch(backend, "key")
        return await is_there(backend, "key"), await batch(backend, "key")

    was_there, [answer] = on_loop(tmp_path, scenario)

    assert not was_there
    assert isinstance(answer, Granted)


def test_a_file_that_was_replaced_is_told_f043(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        (tmp_path / "nebis.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(DefiniteFailure, match="deleted or replaced"):
            await batch(backend, "key")

    on_loop(tmp_path, scenario)


def test_after_a_slow_disk_batches_go_to_the_thread_for_a_while(
    tmp_path: Path, performed: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventloop, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(eventloop, "BATCHES_APART", 2)

    async def scenario(backend: AsyncBackend) -> None:
        performed.clear()
        for key in "abcd":
            await batch(backend, key)

    on_loop(tmp_path, scenario)

    assert [is_main for name, is_main in performed if name == "Begin"] == [True, False, False, True]


def test_large_bodies_are_written_by_the_thread(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        [granted] = await batch(backend, "key")
        performed.clear()
        large = Outcome(kind=OutcomeKind.SUCCEEDED, body=bytes(3 << 20))
        verbs = [complete(granted.record.ownership, large)]
        await backend.sessions.run_unshielded(backend.store.apply(verbs, now=START_US))

    on_loop(tmp_path, scenario)

    assert performed == [("Begin", True), ("Query", False), ("Commit", False)]


def test_with_a_rollback_journal_everything_is_done_by_the_thread(
    tmp_path: Path, performed: list[tuple[str, bool]]
) -> None:
    """There a reader waits for a writer, and a writer for the disk before its commit."""

    async def scenario(backend: AsyncBackend) -> None:
        performed.clear()
        await batch(backend, "key")

    on_loop(tmp_path, scenario, journal="rollback")

    assert performed == [("Begin", False), ("Query", False), ("Commit", False)]


def test_a_store_that_is_not_open_yet_is_opened_by_the_thread(
    tmp_path: Path, performed: list[tuple[str, bool]]
) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        await backend.sessions.close()
        performed.clear()
        await batch(backend, "key")

    on_loop(tmp_path, scenario)

    assert performed == [("Begin", False), ("Query", False), ("Commit", False)]


def test_what_waits_is_done_before_the_store_closes(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        waiting = [asyncio.ensure_future(batch(backend, key)) for key in "abc"]
        await backend.sessions.close()
        return [answer for answers in await asyncio.gather(*waiting) for answer in answers]

    answers = on_loop(tmp_path, scenario)

    assert [isinstance(answer, Granted) for answer in answers] == [True] * 3


def test_a_loop_that_ends_during_a_commit_leaves_the_file_to_the_next(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()
    backend = open_async(sqlite_url(tmp_path))

    async def leaving() -> None:
        await backend.sessions.run(backend.store.clock())
        backend.sessions.run_unshielded(backend.store.apply([claim("left")], now=START_US))

    async def following() -> tuple[bool, list[Any]]:
        answers = await batch(backend, "next")
        found = await is_there(backend, "left")
        await backend.sessions.close()
        return found, answers

    asyncio.run(leaving())
    found, [answer] = asyncio.run(following())

    assert found
    assert isinstance(answer, Granted)


MANY = [str(number) for number in range(FEWEST)]


def test_many_of_a_kind_are_one_write_of_the_thread(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    async def scenario(backend: AsyncBackend) -> tuple[list[Any], list[Any]]:
        performed.clear()
        claims = await batch(backend, *MANY)
        verbs = [complete(answer.record.ownership) for answer in claims]
        return claims, await backend.sessions.run_unshielded(backend.store.apply(verbs, now=START_US))

    claims, completions = on_loop(tmp_path, scenario)

    assert [answer.record.fence for answer in claims] == list(range(1, FEWEST + 1))
    assert completions == [Kept()] * FEWEST
    assert performed == [("BoundWrite", False)] * 2


def test_the_loop_goes_on_while_the_thread_writes(tmp_path: Path, performed: list[tuple[str, bool]]) -> None:
    """What comes meanwhile is with the thread already when that is done, and nothing overtakes what waits for it."""

    async def scenario(backend: AsyncBackend) -> list[Any]:
        await batch(backend, "before")
        await backend.sessions.run(backend.store.clock())  # After a process's first write there is a checkpoint.
        other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        performed.clear()
        waiting = [batch(backend, *(f"{lane} {key}" for key in MANY)) for lane in "ab"]
        waiting += [batch(backend, "single"), batch(backend, *(f"c {key}" for key in MANY))]
        together = asyncio.ensure_future(asyncio.gather(*waiting))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not together.done()
        other.execute("ROLLBACK")
        other.close()
        return [answer for answers in await together for answer in answers]

    answers = on_loop(tmp_path, scenario, busy_seconds=30)

    assert [answer.record.fence for answer in answers] == list(range(2, len(answers) + 2))
    alone = [("Begin", True), ("Query", True), ("Commit", False)]
    assert performed == [("BoundWrite", False)] * 2 + alone + [("BoundWrite", False)]


def test_a_write_that_finds_a_key_taken_is_done_in_the_usual_way(
    tmp_path: Path, performed: list[tuple[str, bool]]
) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        await batch(backend, MANY[3], by="somebody else")
        performed.clear()
        return await batch(backend, *MANY)

    answers = on_loop(tmp_path, scenario)

    assert [type(answer) for answer in answers] == [Running if key == MANY[3] else Granted for key in MANY]
    assert performed == [("BoundWrite", False), ("Begin", True), ("Query", True), ("Query", True), ("Commit", False)]


def test_a_write_that_is_cancelled_before_its_turn_is_not_performed(
    tmp_path: Path, performed: list[tuple[str, bool]]
) -> None:
    async def scenario(backend: AsyncBackend) -> list[bool]:
        performed.clear()
        other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first, second, third, fourth = (
            asyncio.ensure_future(batch(backend, *(f"{lane} {key}" for key in MANY))) for lane in "abcd"
        )
        for _ in range(10_000):
            if performed:
                break
            await asyncio.sleep(0.001)
        # The thread waits for the file with it: it goes on to its end.
        first.cancel()
        second.cancel()
        fourth.cancel()
        other.execute("ROLLBACK")
        other.close()
        await third
        return [await is_there(backend, f"{lane} {MANY[0]}") for lane in "abcd"]

    assert on_loop(tmp_path, scenario, busy_seconds=30) == [True, False, True, False]


def test_a_write_that_is_refused_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> tuple[list[bool], list[Any]]:
        with pytest.raises(Spoilt):
            await batch(backend, *MANY, nonce=b"short")
        with pytest.raises(Spoilt):
            await batch(backend, *MANY, tenant="\ud800")
        return [await is_there(backend, key) for key in MANY], await batch(backend, *MANY)

    were_there, answers = on_loop(tmp_path, scenario)

    assert not any(were_there)
    assert all(isinstance(answer, Granted) for answer in answers)


def test_a_write_to_a_file_that_is_taken_away_meanwhile_is_not_believed_f043(tmp_path: Path) -> None:
    async def scenario(backend: AsyncBackend) -> None:
        other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(batch(backend, *MANY))
        await asyncio.sleep(0.05)
        (tmp_path / "nebis.db").rename(tmp_path / "elsewhere.db")
        other.execute("ROLLBACK")
        other.close()
        with pytest.raises(IndefiniteFailure, match="deleted or replaced"):
            await waiting
        with pytest.raises(DefiniteFailure, match="deleted or replaced"):
            await batch(backend, *MANY)

    on_loop(tmp_path, scenario, busy_seconds=30)


def test_a_checkpoint_after_a_write_is_the_threads_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[bool] = []
    hold = threading.Event()
    hold.set()

    def checkpoint(connection: Connection, *, may_checkpoint: bool = True) -> None:
        if may_checkpoint and connection.is_checkpoint_due:
            hold.wait(10)
            copied.append(threading.current_thread() is threading.main_thread())
        settle(connection, may_checkpoint=may_checkpoint)

    settle = Connection.settle
    monkeypatch.setattr(Connection, "settle", checkpoint)
    monkeypatch.setattr(Connection, "is_checkpoint_due", property(lambda _: True))

    async def scenario(backend: AsyncBackend) -> list[Any]:
        hold.clear()
        copied.clear()
        answers = await batch(backend, *MANY)
        assert not copied
        hold.set()
        return answers

    answers = on_loop(tmp_path, scenario)

    assert all(isinstance(answer, Granted) for answer in answers)
    assert copied[0] is False


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_write_that_is_under_way_when_the_store_closes_is_told(tmp_path: Path, is_taken: bool) -> None:
    async def scenario(backend: AsyncBackend) -> list[Any]:
        if is_taken:
            await batch(backend, MANY[3], by="somebody else")
        waiting = [batch(backend, *MANY), batch(backend, *(f"next {key}" for key in MANY))]
        await backend.sessions.close()
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    first, second = on_loop(tmp_path, scenario)

    assert [type(answer) for answer in second] == [Granted] * FEWEST
    if is_taken:  # Nothing of it is there, and nobody is left who could look at each.
        assert isinstance(first, DefiniteFailure)
    else:
        assert [type(answer) for answer in first] == [Granted] * FEWEST


def test_a_loop_that_ends_during_a_write_leaves_the_file_to_the_next(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()
    backend = open_async(sqlite_url(tmp_path))

    async def leaving() -> None:
        await backend.sessions.run(backend.store.clock())
        for lane in "ab":
            backend.sessions.run_unshielded(backend.store.apply([claim(f"{lane} {key}") for key in MANY], now=START_US))

    async def following() -> tuple[bool, list[Any]]:
        answers = await batch(backend, *MANY)
        found = await is_there(backend, f"a {MANY[0]}")
        await backend.sessions.close()
        return found, answers

    asyncio.run(leaving())
    found, answers = asyncio.run(following())

    assert found
    assert all(isinstance(answer, Granted) for answer in answers)


def test_loops_of_several_threads_share_the_file(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()
    backend = open_async(sqlite_url(tmp_path))
    granted: list[Any] = []

    async def many(name: str) -> None:
        for number in range(20):
            granted.extend(await batch(backend, f"{name}-{number}"))
            await backend.sessions.run(backend.store.clock())

    threads = [threading.Thread(target=asyncio.run, args=(many(name),)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    asyncio.run(backend.sessions.close())
    assert [isinstance(answer, Granted) for answer in granted] == [True] * 60
