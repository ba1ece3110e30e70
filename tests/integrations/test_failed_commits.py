"""A database that refuses at COMMIT, over HTTP: never a success, nothing written, and the retry runs.

A deferred foreign key is looked at only then. Whoever commits, the framework's session or ours, it comes before the
answer is stored and sent.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from fastapi import APIRouter, Depends, FastAPI
from flask import Flask, request
from pydantic import BaseModel
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from nebis import AsyncAttempt, AsyncNebis, Attempt, Local, Nebis
from nebis.integrations import fastapi, flask, wsgi
from nebis.integrations.django.views import idempotent
from nebis.testing.http_conformance.client import Client, new_key
from tests.engines.postgres import PostgresServer
from tests.integrations.django_project import json_of
from tests.integrations.django_project import wsgi_serving as django_serving
from tests.integrations.servers import uvicorn_serving
from tests.integrations.wsgi_servers import waitress_serving
from tests.transactions.django_shop import database

Serving = Callable[[str], AbstractContextManager[tuple[str, int]]]
INSERT = text("INSERT INTO child VALUES (:parent, :tag)")
TABLES = (
    "CREATE TABLE parent (id TEXT PRIMARY KEY)",
    "CREATE TABLE child (parent TEXT REFERENCES parent DEFERRABLE INITIALLY DEFERRED, tag TEXT PRIMARY KEY)",
)

runs: Counter[str] = Counter()


class Child(BaseModel):
    tag: str
    parent: str


def tenant(*_: Any) -> str:
    return "acct-1"


def made(tag: str) -> dict[str, str]:
    runs[tag] += 1
    return {"id": str(uuid4()), "tag": tag}


def engine_of(url: str) -> Engine:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    _obey(engine)
    return engine


def _obey(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))


@contextmanager
def fastapi_app(url: str, declare: Callable[[AsyncNebis, APIRouter, Any], None]) -> Iterator[tuple[str, int]]:
    asynchronous = url.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
    engine, nebis, router = (
        create_async_engine(asynchronous),
        AsyncNebis(url),
        APIRouter(route_class=fastapi.NebisRoute),
    )
    _obey(engine.sync_engine)
    declare(nebis, router, engine)

    @asynccontextmanager
    async def span(app: FastAPI) -> AsyncIterator[None]:
        async with fastapi.lifespan(nebis)(app):
            yield
        await engine.dispose()

    app = FastAPI(lifespan=span)
    app.include_router(router)
    with uvicorn_serving(app) as address:
        yield address


def fastapi_session(url: str) -> AbstractContextManager[tuple[str, int]]:
    """The session is a dependency that commits at its end."""

    def declare(nebis: AsyncNebis, router: APIRouter, engine: Any) -> None:
        async def session() -> AsyncIterator[AsyncSession]:
            async with AsyncSession(engine) as opened, opened.begin():
                yield opened

        @router.post("/children", status_code=201)
        @fastapi.idempotent(nebis, "make", effects=Local, tenant=lambda: "acct-1")
        async def make(
            child: Child, session: Annotated[AsyncSession, Depends(session, scope="function")]
        ) -> dict[str, str]:
            await session.execute(INSERT, child.model_dump())
            return made(child.tag)

    return fastapi_app(url, declare)


def fastapi_transaction(url: str) -> AbstractContextManager[tuple[str, int]]:
    """The session is committed with the outcome."""

    def declare(nebis: AsyncNebis, router: APIRouter, engine: Any) -> None:
        @router.post("/children", status_code=201)
        @fastapi.idempotent(nebis, "make", effects=Local, tenant=lambda: "acct-1")
        async def make(child: Child, attempt: AsyncAttempt) -> dict[str, str]:
            async with AsyncSession(engine) as session, attempt.transaction(session) as tx:
                await session.execute(INSERT, child.model_dump())
                answer = made(child.tag)
                tx.finish(answer)
            return answer

    return fastapi_app(url, declare)


@contextmanager
def flask_app(url: str, declare: Callable[[Nebis, Flask, Engine], None]) -> Iterator[tuple[str, int]]:
    app, engine = Flask("shop"), engine_of(url)
    with Nebis(url) as nebis:
        declare(nebis, app, engine)
        with waitress_serving(app) as address:
            yield address
    engine.dispose()


def flask_session(url: str) -> AbstractContextManager[tuple[str, int]]:
    """The view commits."""

    def declare(nebis: Nebis, app: Flask, engine: Engine) -> None:
        @app.post("/children")
        @flask.idempotent(nebis, "make", effects=Local, tenant=tenant)
        def make() -> tuple[dict[str, str], int]:
            with Session(engine) as session, session.begin():
                session.execute(INSERT, request.get_json())
                return made(request.get_json()["tag"]), 201

    return flask_app(url, declare)


def flask_transaction(url: str) -> AbstractContextManager[tuple[str, int]]:
    """The session is committed with the outcome."""

    def declare(nebis: Nebis, app: Flask, engine: Engine) -> None:
        @app.post("/children")
        @flask.idempotent(nebis, "make", effects=Local, tenant=tenant)
        def make(attempt: Attempt) -> tuple[dict[str, str], int]:
            with Session(engine) as session, attempt.transaction(session) as tx:
                session.execute(INSERT, request.get_json())
                answer = made(request.get_json()["tag"]), 201
                tx.finish(answer)
            return answer

    return flask_app(url, declare)


class _Committing:
    """The answer of an application whose middleware commits when the server closes it."""

    def __init__(self, session: Session, chunks: Iterable[bytes]) -> None:
        self._session = session
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks

    def close(self) -> None:
        with self._session:
            try:
                self._session.commit()
            except IntegrityError:
                self._session.rollback()
                raise


@contextmanager
def wsgi_rules(url: str) -> Iterator[tuple[str, int]]:
    """What is inside commits when its answer is closed."""
    app, engine = Flask("shop"), engine_of(url)

    @app.post("/children")
    def make() -> tuple[dict[str, str], int]:
        request.environ["session"].execute(INSERT, request.get_json())
        return made(request.get_json()["tag"]), 201

    def committing(environ: Any, start_response: Any) -> Iterable[bytes]:
        environ["session"] = Session(engine)
        return _Committing(environ["session"], app(environ, start_response))

    with Nebis(url) as nebis:
        rules = [wsgi.rule(nebis, "POST /children", "make", effects=Local, tenant=tenant)]
        with waitress_serving(wsgi.Protected(committing, rules=rules)) as address:
            yield address
    engine.dispose()


@contextmanager
def django_atomic_requests(url: str) -> Iterator[tuple[str, int]]:
    """Django has a transaction around each request."""
    nebis = Nebis(url)

    @csrf_exempt  # type: ignore[untyped-decorator]  # Django ships no types.
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    def make(request: HttpRequest) -> HttpResponse:
        child = json_of(request)
        with connections["shop"].cursor() as cursor:
            cursor.execute("INSERT INTO child VALUES (%s, %s)", [child["parent"], child["tag"]])
        return JsonResponse(made(child["tag"]), status=201)

    with (
        database("shop", url, ATOMIC_REQUESTS=True),
        django_serving([path("children", make)], nebis) as address,
    ):
        yield address


SERVED: dict[str, Serving] = {
    serving.__name__: serving
    for serving in (
        fastapi_session,
        fastapi_transaction,
        flask_session,
        flask_transaction,
        wsgi_rules,
        django_atomic_requests,
    )
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database of the store and of the application."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.mark.parametrize("served", SERVED)
def test_a_commit_that_fails_is_never_a_success_and_the_retry_runs(url: str, served: str) -> None:
    engine, key, parent = engine_of(url), new_key(), f"parent-{new_key()}"
    command = {"tag": key, "parent": parent}
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(text(table))

    with SERVED[served](url) as address:
        client = Client(address)
        failed = [client.post("/children", command, key=key) for _ in range(2)]
        with engine.begin() as connection:
            written = connection.execute(text("SELECT tag FROM child")).all()
            connection.execute(text("INSERT INTO parent VALUES (:parent)"), command)
        retried, replayed = [client.post("/children", command, key=key) for _ in range(2)]

    assert {reply.status for reply in failed} <= {500, 503}, failed
    assert written == []
    assert (retried.status, retried.is_replay) == (201, False)
    assert (replayed.status, replayed.is_replay, replayed.body) == (201, True, retried.body)
    assert runs[key] == 3
    with engine.begin() as connection:
        assert connection.execute(text("SELECT tag FROM child")).all() == [(key,)]
    engine.dispose()
