"""Interleaved rounds: in each, every contender is measured once, so that all meet the same machine."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import IO

import psycopg

from benchmarks.book import Book, Measured
from benchmarks.child import Child, DidNotStart
from benchmarks.contender import BARE, Contender, Places
from benchmarks.contenders import CONTENDERS
from benchmarks.plan import Plan
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.engines.valkey import ValkeyServer

# Enough that neither memory nor checkpoints decide; durability is PostgreSQL's default.
POSTGRES_SETTINGS = {
    "max_connections": "500",
    "shared_buffers": "2GB",
    "min_wal_size": "4GB",
    "max_wal_size": "8GB",
}
_PAGES_PER_GIGABYTE = 131_072
_REDIS_DATABASES = 16


@dataclass(slots=True)
class Stage:
    """The servers of one run, the log of its processes, and a place for each of them."""

    directory: Path
    log: IO[bytes]
    postgres: PostgresServer | None
    valkey: ValkeyServer | None
    _numbers: "count[int]" = field(default_factory=count)

    def places(self) -> Places:
        """Return a database, a number of a Redis database, and a directory that nobody else has."""
        number = next(self._numbers)
        directory = self.directory / str(number)
        directory.mkdir()
        return Places(
            postgres_url="" if self.postgres is None else self.postgres.create_database(),
            redis_url="" if self.valkey is None else f"{self.valkey.url[:-1]}{number % _REDIS_DATABASES}",
            directory=directory,
        )


@contextmanager
def stage(stores: Iterable[str], log_path: Path, *, served_gigabytes: int = 1) -> Iterator[Stage]:
    """Start the servers that these stores need, and end them; PostgreSQL as if it had written so much already."""
    wanted = set(stores)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nebis-bench-")))
        log = stack.enter_context(log_path.open("wb"))
        postgres = (
            stack.enter_context(PostgresServer(find_binaries(), settings=POSTGRES_SETTINGS))
            if "postgres" in wanted
            else None
        )
        if postgres is not None:
            _let_serve(postgres, served_gigabytes)
        valkey = stack.enter_context(ValkeyServer()) if "redis" in wanted else None
        if valkey is not None:
            # What Redis itself recommends, and faster: its users may lose the answers of the last second.
            import_module("redis").Redis.from_url(valkey.url).config_set("appendfsync", "everysec")
        yield Stage(directory, log, postgres, valkey)


def _let_serve(postgres: PostgresServer, gigabytes: int) -> None:
    """Let a new server be as one that has served for an hour, before anybody is measured.

    Until it has written that much it makes each file of its log anew, fills it with zeros and syncs it, in which time
    nobody can commit, and touches each page of its shared memory for the first time. Afterwards it uses both again.
    """
    with psycopg.connect(postgres.create_database(), autocommit=True) as connection:
        connection.execute("CREATE TABLE filler (page text)")
        connection.execute("ALTER TABLE filler ALTER page SET STORAGE PLAIN")
        # Two at a time: what is dropped leaves the memory that it had to what comes next.
        for written in range(0, gigabytes, 2):
            pages = min(2, gigabytes - written) * _PAGES_PER_GIGABYTE
            connection.execute("INSERT INTO filler SELECT repeat('x', 8000) FROM generate_series(1, %s)", (pages,))
            connection.execute("TRUNCATE filler")
        connection.execute("CHECKPOINT")  # Makes the files of the log those that come next.


def chosen(plan: Plan) -> list[Contender]:
    """Return the contenders that the plan names, or all."""
    return [contender for contender in CONTENDERS if not plan.systems or contender.name in plan.systems]


def in_process(plan: Plan, stage: Stage, book: Book) -> None:
    """Measure calls of functions, one process per contender."""
    with ExitStack() as stack:
        lineup = [
            contender
            for contender in chosen(plan)
            if contender.open is not None and set(contender.cases) & set(plan.only)
        ]
        workers = _started(stack, stage, book, lineup, "worker")
        for contender, worker in workers:
            if note := worker.ask(do="check").get("note"):
                book.note(contender.name, note)
        # What is compared with each other is measured in the same rounds.
        for cases in (("cycle", "single_tx"), ("replay",)):
            _measure_cases(plan, book, workers, [case for case in cases if case in plan.only])


def _measure_cases(plan: Plan, book: Book, workers: list[tuple[Contender, Child]], cases: list[str]) -> None:
    for callers in sorted({*plan.callers, *plan.replay_callers, *plan.peer_callers}):
        lineup = [
            (contender, worker, case)
            for contender, worker in workers
            for case in cases
            if case in contender.cases and callers in _callers_of(plan, contender, case)
        ]
        words = " and ".join(cases)
        for turn in range(plan.rounds if lineup else 0):
            book.progress(f"{words}, {callers} callers, round {turn + 1} of {plan.rounds}, {len(lineup)} systems")
            # Every other round goes backwards, so that nobody always follows the same neighbour.
            for contender, worker, case in list(lineup) if turn % 2 == 0 else list(reversed(lineup)):
                answer = worker.ask(do="measure", case=case, callers=callers, seconds=plan.seconds)
                measured = Measured(contender.system, contender.store, case, callers)
                if not book.add(measured, contender.name, turn, answer):
                    lineup.remove((contender, worker, case))


def _callers_of(plan: Plan, contender: Contender, case: str) -> tuple[int, ...]:
    if contender.is_peer:
        return plan.peer_callers
    return plan.replay_callers if case == "replay" else plan.callers


def over_http(plan: Plan, stage: Stage, book: Book) -> None:
    """Measure requests, with the bare application first and last in every round."""
    with ExitStack() as stack:
        client = stack.enter_context(Child("client", None, None, stage.log))
        served = [contender for contender in chosen(plan) if contender.app is not None]
        servers = _started(stack, stage, book, served, "server")
        ports: dict[str, int] = {contender.name: server.greeting["port"] for contender, server in servers}
        lineup = [contender for contender, _ in servers]
        bare = next((contender for contender in lineup if contender.system == BARE), None)
        if bare is None:
            return

        def measure(contender: Contender, case: str, turn: int, callers: int, name: str) -> None:
            if turn == 0 and case == "cycle":
                # The first requests open connections.
                client.ask(port=ports[contender.name], case=case, callers=callers, seconds=0.2)
            answer = client.ask(port=ports[contender.name], case=case, callers=callers, seconds=plan.seconds)
            book.add(Measured(contender.system, contender.store, name, callers), contender.name, turn, answer)

        others = [contender for contender in lineup if contender is not bare]
        for callers in plan.http_callers:
            for turn in range(plan.rounds):
                book.progress(f"http, {callers} callers, round {turn + 1} of {plan.rounds}, {len(others)} systems")
                measure(bare, "cycle", turn, callers, "http_new")
                for contender in others if turn % 2 == 0 else reversed(others):
                    measure(contender, "cycle", turn, callers, "http_new")
                    measure(contender, "replay", turn, callers, "http_replay")
                measure(bare, "cycle", turn, callers, "http_again")


def _started(
    stack: ExitStack, stage: Stage, book: Book, contenders: list[Contender], module: str
) -> list[tuple[Contender, Child]]:
    """Start a process for each; leave out, with a note, whoever does not start."""
    book.progress(f"starting {len(contenders)} processes")
    starting = [(contender, Child(module, contender.name, stage.places(), stage.log)) for contender in contenders]
    started: list[tuple[Contender, Child]] = []
    for contender, child in starting:
        try:
            started.append((contender, stack.enter_context(child)))
        except DidNotStart as reason:
            book.note(contender.name, f"did not start: {reason}")
    return started
