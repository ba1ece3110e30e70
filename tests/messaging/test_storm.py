"""Four relays and four consumers, killed again and again, and a broker that crashes: each message is applied once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import nats
import psycopg
import pytest

from nebis import Nebis
from nebis.messaging import stage
from tests.engines.nats import NatsServer
from tests.messaging import storm
from tests.messaging.storm import CONSUMER_POINTS, RELAY_POINTS, STREAM, Doom, Entry, Scene

SIZE_VARIABLE = "NEBIS_STORM_MESSAGES"
MESSAGES = int(os.environ.get(SIZE_VARIABLE, "2000"))
ACCOUNTS = 40
EACH = 4
"""Relays, and consumers."""
KILLS_PER_POINT = max(3, MESSAGES // 1000)
AHEAD = 400
"""How many messages are staged ahead of what is applied, so that the storm lasts to the end."""
SLICE = 20
PATIENCE_SECONDS = max(300.0, MESSAGES / 10)


@dataclass
class Post:
    """A place for one process; whoever dies there is replaced."""

    role: Callable[[Scene, Doom | None], None]
    process: ForkServerProcess | None = None
    doom: Doom | None = None


@dataclass
class Company:
    """Everybody who works, and the dooms that are still to be dealt."""

    scene: Scene
    dooms: dict[Callable[..., None], list[Doom]]
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([storm.__name__])
        self._posts = [Post(role) for role in (storm.relay, storm.consume) for _ in range(EACH)]

    def attend(self) -> None:
        """Note who died, and put somebody in every empty place."""
        for post in self._posts:
            if post.process is not None and post.process.is_alive():
                continue
            if post.process is not None:
                assert post.process.exitcode == -9, f"{post.role.__name__} ended with {post.process.exitcode}"
                assert post.doom is not None
                self.kills[f"{post.role.__name__}: {post.doom.point}"] += 1
            dooms = self.dooms[post.role]
            post.doom = dooms.pop() if dooms else None
            post.process = self._context.Process(target=post.role, args=(self.scene, post.doom))
            post.process.start()

    def dismiss(self) -> list[int | None]:
        """Ask everybody to end, and return how those did who were not doomed."""
        for post in self._posts:
            if post.process is not None:
                post.process.terminate()
        for post in self._posts:
            if post.process is not None:
                post.process.join(30)
                if post.process.is_alive():
                    post.process.kill()
                    post.process.join()
        return [post.process.exitcode for post in self._posts if post.process is not None and post.doom is None]


@pytest.fixture
def broker() -> Any:
    """A broker that this test may crash."""
    with NatsServer() as server:
        yield server


def dooms(chance: random.Random) -> dict[Callable[..., None], list[Doom]]:
    dealt = {}
    for role, points in ((storm.relay, RELAY_POINTS), (storm.consume, CONSUMER_POINTS)):
        rounds = [chance.sample(points, len(points)) for _ in range(KILLS_PER_POINT)]
        dealt[role] = [Doom.drawn(point, chance) for points in rounds for point in points]
    return dealt


async def create_stream(url: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name=STREAM, subjects=["storm.*"], duplicate_window=600)
    await client.close()


async def count_in_stream(url: str) -> int:
    client = await nats.connect(url)
    messages = (await client.jetstream().stream_info(STREAM)).state.messages
    await client.close()
    return messages


class Books:
    """The application that stages, and a look at what became of it."""

    def __init__(self, url: str) -> None:
        self._nebis = Nebis(url, housekeeping=False)
        self._nebis.open()
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(storm.SCHEMA)
        self._numbers: Counter[str] = Counter()
        self.staged: list[str] = []

    def stage_some(self) -> None:
        with self._connection.transaction():
            for _ in range(min(SLICE, MESSAGES - len(self.staged))):
                account = f"account {len(self.staged) % ACCOUNTS}"
                self._numbers[account] += 1
                entry = Entry(account, self._numbers[account])
                name = f"{account}/{entry.number}".replace(" ", "-")
                topic = storm.topic_of(account)
                stage(self._nebis, self._connection, topic, entry, id=name, ordering_key=account)
                self.staged.append(name)

    def applied(self) -> int:
        return int(self._value("SELECT count(*) FROM ledger"))

    def unpublished(self) -> int:
        return int(self._value("SELECT count(*) FROM nebis_outbox WHERE state <> 2"))

    def ledger(self) -> list[tuple[str, str, int]]:
        rows = self._connection.execute("SELECT message, account, number FROM ledger ORDER BY position")
        return [(str(message), str(account), int(number)) for message, account, number in rows]

    def close(self) -> None:
        self._connection.close()
        self._nebis.close()

    def _value(self, query: str) -> Any:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_each_message_is_applied_once_and_in_order_however_often_everybody_is_killed(
    broker: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    """F106, F107, F110, F111, F112."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - shown by `pytest -s`, and whenever this fails.
    scene = Scene(store=postgres_url, broker=broker.url, deliveries=tmp_path / "deliveries")
    company = Company(scene, dooms(random.Random(seed)))
    asyncio.run(create_stream(broker.url))
    books = Books(postgres_url)
    began = time.monotonic()
    restarts = 0

    try:
        while (applied := books.applied()) < MESSAGES or books.unpublished():
            assert time.monotonic() - began < PATIENCE_SECONDS, f"{applied} of {MESSAGES} after {PATIENCE_SECONDS} s"
            company.attend()
            if len(books.staged) < MESSAGES and len(books.staged) - applied < AHEAD:
                books.stage_some()
            else:
                time.sleep(0.02)  # Others work meanwhile; what they did shows only in the tables.
            if applied > MESSAGES / 2 and restarts == 0:
                broker.restart(crash=True)
                restarts += 1
        seconds = time.monotonic() - began
    finally:
        ends = company.dismiss()

    ledger = books.ledger()
    books.close()
    deliveries = len(scene.deliveries.read_text().splitlines())
    kept = asyncio.run(count_in_stream(broker.url))
    figures = (
        f"{len(books.staged)} staged, {kept} in the stream, {deliveries} deliveries, {len(ledger)} applied; "
        f"{sum(company.kills.values())} kills, {restarts} crash of the broker, {seconds:.1f} s: {dict(company.kills)}"
    )
    print(figures)  # noqa: T201 - the same.

    assert Counter(message for message, _, _ in ledger) == Counter(books.staged), "each once, and none lost"
    for account in {account for _, account, _ in ledger}:
        numbers = [number for _, owner, number in ledger if owner == account]
        assert numbers == list(range(1, len(numbers) + 1)), f"{account} is in order"
    assert kept == MESSAGES, "the broker told every repetition by its id"
    assert restarts == 1
    expected = {f"relay: {point}" for point in RELAY_POINTS} | {f"consume: {point}" for point in CONSUMER_POINTS}
    assert set(company.kills) == expected, "somebody died at every point"
    assert set(ends) <= {0}
