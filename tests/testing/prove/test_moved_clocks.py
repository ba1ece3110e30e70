"""Clocks that are hours apart, and clocks that step: how soon something happens changes, and nothing else (I7).

A SQLite store has no clock but that of the process that asks, so two processes on one file can disagree. PostgreSQL has
one of its own, which can step. The lease is an hour and clocks differ by three: nobody waits for a lease to pass here,
and whoever is taken over looked dead by the clock alone.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nebis import Nebis
from nebis.testing.bank import Bank, BankProcess
from nebis.testing.bank.behaviours import Kind as Slow
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.matrix.points import Kind, label_of
from tests.matrix.stage import Child, Evidence, Troupe, wait_until
from tests.matrix.troupe import Part, now
from tests.testing.prove.clocks import HOW_TO_GET_IT, Clock, find_library, moved

LEASE_SECONDS = 3600.0
HOUR_US = 3600 * 1_000_000
NEVER_REPEATED = (Kind.QUERYABLE, Kind.UNRECOVERABLE, Kind.OPAQUE)
"""Whoever takes these over cannot know what happened, and does not try."""

pytestmark = pytest.mark.skipif(find_library() is None, reason=HOW_TO_GET_IT)


@dataclass(frozen=True)
class Scene:
    """One store, one bank, and processes on every clock."""

    url: str
    bank: Bank
    troupes: dict[Clock, Troupe]
    connect: Callable[[], Any]

    def prepare(self) -> None:
        """Make the tables."""
        with Nebis(self.url, housekeeping=False), closing(self.connect()) as connection:
            connection.execute("CREATE TABLE takings (reference TEXT NOT NULL, kind TEXT NOT NULL, call TEXT NOT NULL)")
            connection.commit()

    def child(self, clock: Clock, **marks: Any) -> AbstractContextManager[Child]:
        """Start a process of the service on this clock."""
        part = Part(url=self.url, bank_port=self.bank.port, lease_seconds=LEASE_SECONDS, **marks)
        return self.troupes[clock].child(part)

    def evidence(self, kind: Kind, key: str) -> Evidence:
        """Begin to collect what is seen of one key."""
        return Evidence(self.bank, kind, key, self._takings)

    def ask(self, evidence: Evidence, clock: Clock, *, calls: int = 1, passes: int = 0) -> None:
        """Let a client ask at a process on this clock, after its worker looked for what is due."""
        with self.child(clock) as child:
            evidence.hear(on_one_clock(child.ask(evidence.kind, evidence.key, calls=calls, passes=passes)))

    def _takings(self, reference: str) -> list[tuple[str, str]]:
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT reference, kind, call FROM takings").fetchall()
        return [(kind, call) for of, kind, call in rows if of == reference]


def on_one_clock(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put on our clock what was dated by any, so that the checker sees the order: all are off by whole hours."""
    return [
        {**entry, "at": entry["at"] - round((entry["at"] - now()) / HOUR_US) * HOUR_US} if "at" in entry else entry
        for entry in said
    ]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank whose clock is right."""
    with BankProcess(tmp_path_factory.mktemp("bank") / "bank.db") as process:
        yield process.bank


@pytest.fixture(scope="module")
def troupes() -> Iterator[dict[Clock, Troupe]]:
    """A warm process on every clock."""
    with ExitStack() as stack:
        started = {}
        for clock in Clock:
            with moved(clock):
                started[clock] = stack.enter_context(Troupe())
        yield started


@pytest.fixture(scope="module")
def file_scene(tmp_path_factory: pytest.TempPathFactory, bank: Bank, troupes: dict[Clock, Troupe]) -> Scene:
    """A file, whose clock is that of whoever asks."""
    file: Path = tmp_path_factory.mktemp("clocks") / "nebis.db"
    scene = Scene(f"sqlite:///{file}", bank, troupes, lambda: sqlite3.connect(file))
    scene.prepare()
    return scene


def point_of(kind: Kind) -> str:
    """Return where an owner stops: charged, and nothing stored; a local step outside its transaction."""
    return label_of(kind, "intend/before" if kind is Kind.TRANSACTIONAL else "call/charged")


def assert_once(evidence: Evidence) -> None:
    """One effect, one answer for everybody, and a history that breaks no rule (G1, G2, P5)."""
    assert evidence.state == "completed"
    assert evidence.charges == 1
    assert len(set(evidence.answers)) == 1
    assert evidence.violations() == []


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("owner", "successor"), [(Clock.RIGHT, Clock.AHEAD), (Clock.BEHIND, Clock.RIGHT)])
def test_owner_that_looks_dead_by_another_clock_is_taken_over_and_it_happens_once_f053(
    file_scene: Scene, owner: Clock, successor: Clock, kind: Kind
) -> None:
    evidence = file_scene.evidence(kind, f"looks-dead:{owner}:{kind}")

    with file_scene.child(owner, place=point_of(kind), how="stop") as child:
        frozen = child.ask(kind, evidence.key)
        assert "doomed" in frozen[-1], "it never came to the point"
        file_scene.ask(evidence, successor, calls=2)
        assert evidence.state == ("in_doubt" if kind in NEVER_REPEATED else "completed")
        child.thaw()
        evidence.hear(on_one_clock([*frozen, *child.hear()]))
    for clock in Clock:
        file_scene.ask(evidence, clock)

    assert_once(evidence)


@pytest.mark.parametrize("kind", [Kind.STICKY, Kind.SUCCESS_ONLY, Kind.FENCED])
def test_owner_that_wakes_while_its_successor_is_at_work_can_write_nothing_f050_f053(
    file_scene: Scene, kind: Kind
) -> None:
    """By its own clock its lease has most of an hour left; the fence alone stops it (I2)."""
    evidence, bank = file_scene.evidence(kind, f"two-at-work:{kind}"), file_scene.bank

    with (
        file_scene.child(Clock.RIGHT, place=point_of(kind), how="stop") as owner,
        file_scene.child(Clock.AHEAD) as successor,
        ThreadPoolExecutor(1) as pool,
    ):
        frozen = owner.ask(kind, evidence.key)
        # Not frozen as well: it would hold the file if that befell it in the middle of a write.
        bank.behave(evidence.key, Slow.DELAY_AFTER, seconds=20)
        working = pool.submit(successor.ask, kind, evidence.key)
        wait_until(lambda: len(bank.requests(evidence.key)) == 2, "the successor's call")
        owner.thaw()
        told = owner.hear()
        assert [entry["code"] for entry in told if "code" in entry] == ["in-flight"]
        bank.release(evidence.key)
        # From one that was at work itself that is no refusal: what it did before it was fenced, it did.
        told = [{**entry, "type": "info"} if "code" in entry else entry for entry in told]
        evidence.hear(on_one_clock([*frozen, *told, *working.result()]))
    for clock in Clock:
        file_scene.ask(evidence, clock)

    assert_once(evidence)


@pytest.mark.parametrize("who", ["client", "worker"])
def test_lease_from_a_clock_that_was_ahead_ends_when_that_time_has_come_f055(file_scene: Scene, who: str) -> None:
    """A death on a clock that was ahead holds its key for longer, not for ever (G3)."""
    evidence = file_scene.evidence(Kind.STICKY, f"endless:{who}")
    with file_scene.child(Clock.AHEAD, place=point_of(Kind.STICKY)) as child:
        evidence.hear(on_one_clock(child.ask(Kind.STICKY, evidence.key)))

    for clock in (Clock.RIGHT, Clock.BEHIND):
        file_scene.ask(evidence, clock, passes=1)
    assert evidence.codes("refused") == {"in-flight"}
    assert evidence.state == "in_progress"
    file_scene.ask(evidence, Clock.LATER, calls=int(who == "client"), passes=int(who == "worker"))
    assert evidence.state == "completed"
    for clock in Clock:
        file_scene.ask(evidence, clock)

    assert_once(evidence)


@pytest.mark.parametrize("first", Clock)
def test_answer_from_any_clock_is_the_answer_on_every_other(file_scene: Scene, first: Clock) -> None:
    evidence = file_scene.evidence(Kind.UNRECOVERABLE, f"answer:{first}")

    for clock in (first, *Clock):
        file_scene.ask(evidence, clock, passes=1)

    assert_once(evidence)
    assert len(evidence.calls(1)) == 1


def test_clock_of_an_application_has_no_say_over_a_lease_in_postgres_f053(
    postgres_url: str, bank: Bank, troupes: dict[Clock, Troupe]
) -> None:
    scene = Scene(postgres_url, bank, troupes, lambda: psycopg.connect(postgres_url))
    scene.prepare()
    evidence = scene.evidence(Kind.STICKY, "not-my-clock")

    with scene.child(Clock.RIGHT, place=point_of(Kind.STICKY), how="stop") as child:
        frozen = child.ask(Kind.STICKY, evidence.key)
        for clock in Clock:
            scene.ask(evidence, clock, passes=1)
        assert evidence.codes("refused") == {"in-flight"}
        child.thaw()
        evidence.hear(on_one_clock([*frozen, *child.hear()]))
    for clock in Clock:
        scene.ask(evidence, clock)

    assert_once(evidence)
    assert len(evidence.calls(1)) == 1


def test_clock_of_postgres_steps_ahead_and_back_and_it_happens_once_f054_f055(
    bank: Bank, troupes: dict[Clock, Troupe]
) -> None:
    """The server starts again with another clock, as after the loss of its machine."""
    with PostgresServer(find_binaries()) as server:
        url = server.create_database()
        scene = Scene(url, bank, troupes, lambda: psycopg.connect(url))
        scene.prepare()
        alive = {kind: scene.evidence(kind, f"server-ahead:{kind}") for kind in (Kind.STICKY, Kind.OPAQUE)}
        dead = scene.evidence(Kind.FENCED, "server-back")

        with ExitStack() as stack:
            owners = {
                kind: stack.enter_context(scene.child(Clock.RIGHT, place=point_of(kind), how="stop")) for kind in alive
            }
            frozen = {kind: owner.ask(kind, alive[kind].key) for kind, owner in owners.items()}
            with moved(Clock.AHEAD):
                server.restart(immediate=True)
            for kind, evidence in alive.items():
                scene.ask(evidence, Clock.RIGHT, calls=2)
                assert evidence.state == ("in_doubt" if kind is Kind.OPAQUE else "completed")
                owners[kind].thaw()
                evidence.hear(on_one_clock([*frozen[kind], *owners[kind].hear()]))
        with scene.child(Clock.RIGHT, place=point_of(Kind.FENCED)) as child:
            dead.hear(on_one_clock(child.ask(Kind.FENCED, dead.key)))
        with moved(Clock.BEHIND):
            server.restart(immediate=True)
        scene.ask(dead, Clock.RIGHT, passes=1)
        assert dead.codes("refused") == {"in-flight"}
        for evidence in alive.values():
            scene.ask(evidence, Clock.RIGHT)
        with moved(Clock.LATER):
            server.restart(immediate=True)
        for evidence in (dead, *alive.values()):
            scene.ask(evidence, Clock.RIGHT)

        for evidence in (dead, *alive.values()):
            assert_once(evidence)
