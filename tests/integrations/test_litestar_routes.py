"""What is particular to Litestar: dependencies that yield, controllers, compression, its own validation."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from litestar import Controller, Litestar, Request, Response, post
from litestar.config.compression import CompressionConfig
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody

from nebis import AsyncAttempt, AsyncNebis, Attempt, Local, Nebis, Opaque
from nebis.integrations.litestar import NebisPlugin, bind, idempotent
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations.servers import uvicorn_serving

runs: Counter[str] = Counter()


class Thing(msgspec.Struct):
    tag: str
    amount: int = 1


@dataclass
class Made:
    id: str
    tag: str


def tenant(_request: Request[Any, Any, Any]) -> str:
    return "acct-1"


def made(tag: str) -> Made:
    runs[tag] += 1
    return Made(id=str(uuid4()), tag=tag)


@contextmanager
def serving(nebis: AsyncNebis | Nebis, *handlers: Any, **options: Any) -> Iterator[Client]:
    with uvicorn_serving(Litestar(handlers, plugins=[NebisPlugin(nebis)], **options)) as address:
        yield Client(address)


def test_a_controllers_handler_is_protected_and_validation_comes_first() -> None:
    nebis = AsyncNebis("memory://")

    class Things(Controller):
        path = "/things"

        @post()
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        async def make(self, data: JSONBody[Thing]) -> Made:
            return made(data.tag)

    with serving(nebis, Things) as client:
        key = new_key()
        wrong = client.post("/things", {"tag": key, "amount": "x"}, key=key)
        first = client.post("/things", {"tag": key}, key=key)
        again = client.post("/things", {"amount": 1, "tag": key}, key=key)

    assert [wrong.status, first.status, again.status] == [400, 201, 201]
    assert (again.body, again.is_replay) == (first.body, True)
    assert runs[key] == 1


def test_a_session_whose_commit_fails_never_yields_a_success_and_the_retry_runs() -> None:
    nebis = AsyncNebis("memory://")
    commits: list[str] = []

    async def session() -> AsyncGenerator[list[str], None]:
        rows: list[str] = []
        yield rows
        if not commits:
            commits.append("failed")
            raise RuntimeError("the commit failed")
        commits.append("committed")

    def explain(_request: Request[Any, Any, Any], _error: Exception) -> Response[dict[str, bool]]:
        return Response({"sorry": True}, status_code=200)

    @post("/things", dependencies={"session": Provide(session)}, exception_handlers={RuntimeError: explain})
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    async def make(data: JSONBody[Thing], session: NamedDependency[list[str]]) -> Made:
        session.append(data.tag)
        return made(data.tag)

    with serving(nebis, make) as client:
        key = new_key()
        failed, retried, again = [client.post("/things", {"tag": key}, key=key) for _ in range(3)]

    assert (failed.status, failed.code) == (503, "retryable")
    assert (retried.status, retried.is_replay) == (201, False)
    assert again.is_replay
    assert commits == ["failed", "committed", "committed"]
    assert runs[key] == 2


def test_what_is_stored_is_not_compressed_for_one_caller() -> None:
    """F088."""
    nebis = AsyncNebis("memory://")

    @post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make() -> dict[str, str]:
        return {"text": "x" * 5000}

    with serving(nebis, make, compression_config=CompressionConfig(backend="gzip")) as client:
        key = new_key()
        packed = client.post("/things", body=b"", key=key, headers=[("Accept-Encoding", "gzip")])
        plain = client.post("/things", body=b"", key=key)

    assert packed.header("content-encoding") is None
    assert plain.body == packed.body
    assert plain.is_replay


def test_rows_and_answer_commit_together(tmp_path: Path) -> None:
    """T1."""
    nebis = Nebis(f"sqlite:///{tmp_path / 'shop.db'}")

    @post("/things")
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    def make(data: JSONBody[Thing], attempt: Attempt) -> Made:
        answer = made(data.tag)
        with attempt.transaction() as tx:
            tx.connection.execute("CREATE TABLE IF NOT EXISTS thing (tag TEXT PRIMARY KEY)")
            tx.connection.execute("INSERT INTO thing VALUES (?)", (data.tag,))
            tx.finish(Response(answer, status_code=202) if data.amount == 2 else answer)
        return Made(id="never sent", tag="never sent")

    with serving(nebis, make) as client:
        key, other = new_key(), new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]
        chosen = client.post("/things", {"tag": other, "amount": 2}, key=other)

    assert (first.status, first.json()["tag"]) == (201, key)
    assert again.body == first.body
    assert (chosen.status, chosen.json()["tag"]) == (202, other)


def test_an_operation_is_bound_to_a_route() -> None:
    nebis = AsyncNebis("memory://")

    @nebis.operation("make", effects=Local)
    async def operation(attempt: AsyncAttempt, command: Thing) -> Made:
        return made(command.tag)

    @post("/things")
    @bind(operation, tenant=tenant, status=201)
    async def make(data: JSONBody[Thing]) -> Thing:
        return data

    with serving(nebis, make) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert (first.status, first.json()["tag"]) == (201, key)
    assert (again.body, again.is_replay) == (first.body, True)
    assert runs[key] == 1


def test_the_header_and_the_problems_are_documented() -> None:
    nebis = AsyncNebis("memory://")

    @post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make(data: JSONBody[Thing]) -> Made:
        return made(data.tag)

    with serving(nebis, make) as client:
        operation = client.get("/schema/openapi.json").json()["paths"]["/things"]["post"]

    assert "Idempotency-Key" in [one["name"] for one in operation["parameters"]]
    assert {"400", "401", "409", "413", "422", "500", "503"} <= set(operation["responses"])


def test_an_unprotected_handler_is_left_alone() -> None:
    nebis = AsyncNebis("memory://")

    @post("/plain")
    async def plain(data: JSONBody[dict[str, Any]]) -> dict[str, Any]:
        return data

    with serving(nebis, plain) as client:
        reply = client.post("/plain", {"a": 1})

    assert (reply.status, reply.json()) == (201, {"a": 1})
