"""One way to write what a handler does in its transaction, for every driver and both façades.

A step is a function of the scene. Under asyncio it may return something to await, so that one list of steps serves all.
"""

import inspect
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from nebis import Rejected
from tests.stores.postgres_ways import execute

SCHEMA = "CREATE TABLE payments (key text NOT NULL);"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a step has to work with."""

    key: str
    attempt: Any
    transaction: Any
    driver: str

    @property
    def connection(self) -> Any:
        return self.transaction.connection

    def execute(self, text: str) -> Any:
        """Send a statement in the driver's way."""
        hand = self.transaction if self.driver == "sqlite-async" else self.connection
        return hand.execute(text)

    def look(self, text: str, seen: list[Any]) -> Any:
        """Ask for one value, and keep it."""
        if self.driver in ("psycopg", "sqlite"):
            return seen.append(self.execute(text).fetchone()[0])
        return self._look(text, seen)

    async def _look(self, text: str, seen: list[Any]) -> None:
        match self.driver:
            case "asyncpg":
                seen.append(await self.connection.fetchval(text))
            case "psycopg-async":
                seen.append((await (await self.execute(text)).fetchone())[0])
            case _:
                seen.append((await self.execute(text))[0][0])

    def commit(self) -> Any:
        """Commit behind the back of the transaction, in the driver's way."""
        return self._end("commit")

    def rollback(self) -> Any:
        """Roll back behind the back of the transaction, in the driver's way."""
        return self._end("rollback")

    def _end(self, how: str) -> Any:
        if self.driver == "asyncpg":
            return self.connection.execute(how.upper())
        if self.driver == "sqlite-async":
            return self.transaction.run(lambda raw: getattr(raw, how)())
        return getattr(self.connection, how)()


Step = Callable[[Scene], Any]


def pay(scene: Scene) -> Any:
    return scene.execute(f"INSERT INTO payments VALUES ('{scene.key}')")


def bill(scene: Scene) -> Any:
    return scene.execute(f"INSERT INTO payments VALUES ('bill of {scene.key}')")


def announce(scene: Scene) -> Any:
    return scene.transaction.stage("payment.made", {"key": scene.key}, ordering_key=scene.key)


def finish(scene: Scene) -> None:
    scene.transaction.finish("paid")


def commit(scene: Scene) -> Any:
    return scene.commit()


def begin(scene: Scene) -> Any:
    """Begin another transaction behind the back of the one that was ended."""
    return scene.execute("BEGIN")


def roll_back(scene: Scene) -> Any:
    return scene.rollback()


def reject(scene: Scene) -> NoReturn:
    raise Rejected("declined")


def fail(scene: Scene) -> NoReturn:
    raise LookupError("a mistake of the handler")


def misspell(scene: Scene) -> Any:
    return scene.execute("INSERT INTO no_such_table VALUES (1)")


def attach(scene: Scene) -> Any:
    return scene.attempt.resource("payment", scene.key)


WORK: tuple[Step, ...] = (pay, announce, finish)


def perform(steps: Sequence[Step], scene: Scene) -> None:
    for step in steps:
        step(scene)


async def perform_async(steps: Sequence[Step], scene: Scene) -> None:
    for step in steps:
        done = step(scene)
        if inspect.isawaitable(done):
            await done


class Books:
    """What is really in the database, seen from beside."""

    def __init__(self, url: str) -> None:
        self.url = url.replace("+asyncpg", "")
        self.is_sqlite = url.startswith("sqlite:")

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        if not self.is_sqlite:
            return execute(self.url, text)
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)
        try:
            rows = connection.execute(text).fetchall()
            connection.commit()
        finally:
            connection.close()
        return rows

    def create(self) -> None:
        for statement in SCHEMA.split(";")[:-1]:
            self.ask(statement)

    def of(self, key: str) -> tuple[int, int]:
        """Count the business rows of a key: payments, and what is to be published of them."""
        [(payments, outbox)] = self.ask(
            f"SELECT (SELECT count(*) FROM payments WHERE key = '{key}'), "
            f"(SELECT count(*) FROM nebis_outbox WHERE ordering_key = '{key}')"
        )
        return payments, outbox

    def state(self, key: str) -> str | None:
        """Return the letter of the state that the record of a key is in."""
        rows = self.ask(f"SELECT state FROM nebis_record WHERE key = '{key}'")
        return str(rows[0][0]) if rows else None
