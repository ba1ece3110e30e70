"""A merchant's reference under fresh keys, over HTTP, with rows and answer in one commit."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from pydantic import BaseModel

from nebis import Attempt, Local, Nebis
from nebis.integrations.fastapi import NebisRoute, idempotent, lifespan
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import Reply, new_key
from tests.integrations.servers import uvicorn_serving

TWINS = 6
TABLE = "CREATE TABLE payment (reference TEXT PRIMARY KEY, id TEXT NOT NULL, operation_id TEXT NOT NULL)"


class Pay(BaseModel):
    reference: str
    cents: int


def tenant() -> str:
    return "acct-1"


def shop(url: str, mark: str) -> FastAPI:
    nebis = Nebis(url)
    app = FastAPI(lifespan=lifespan(nebis))
    app.router.route_class = NebisRoute

    @nebis.operation("prepare", effects=Local)
    def prepare(attempt: Attempt, command: None) -> None:
        with attempt.transaction() as tx:
            tx.connection.execute(TABLE)
            tx.finish(None)

    @app.post("/payments", status_code=201)
    @idempotent(nebis, "pay", effects=Local, tenant=tenant)
    def pay(command: Pay, attempt: Attempt) -> Any:
        answer: Any = {"id": str(uuid4()), "cents": command.cents}
        row = (command.reference, answer["id"], attempt.operation_id)
        with attempt.transaction() as tx:
            places = ", ".join([mark] * 3)
            made = tx.connection.execute(f"INSERT INTO payment VALUES ({places}) ON CONFLICT DO NOTHING", row)
            if made.rowcount == 0:
                query = f"SELECT operation_id FROM payment WHERE reference = {mark}"
                answer = attempt.original(tx.connection.execute(query, row[:1]).fetchone()[0])
            tx.finish(answer)
        return answer

    prepare(key=str(uuid4()), tenant="acct-1", command=None)
    return app


def test_fresh_keys_at_once_get_one_answer_byte_for_byte(store: str, store_url: str) -> None:
    """P17."""
    together = threading.Barrier(TWINS)
    with uvicorn_serving(shop(store_url, "?" if store == "sqlite" else "%s")) as address:
        client = Client(address)

        def ask(key: str) -> Reply:
            together.wait()
            return client.post("/payments", {"reference": "order-1", "cents": 5}, key=key)

        keys = [new_key() for _ in range(TWINS)]
        with ThreadPoolExecutor(TWINS) as threads:
            replies = list(threads.map(ask, keys))
        again = [client.post("/payments", {"reference": "order-1", "cents": 5}, key=key) for key in keys]
        other = client.post("/payments", {"reference": "order-1", "cents": 6}, key=new_key())

    assert {reply.status for reply in replies} == {201}
    assert len({reply.body for reply in [*replies, *again]}) == 1
    assert all(reply.is_replay for reply in again)
    assert (other.status, other.code) == (422, "natural-key-reused")
