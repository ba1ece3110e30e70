"""What is particular to FastAPI: dependencies, response models, uploads, included routers."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    Form,
    Header,
    HTTPException,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware

from nebis import AsyncAttempt, AsyncNebis, Attempt, ConfigError, Local, Nebis, Opaque
from nebis.integrations.fastapi import NebisRoute, bind, idempotent, late_exits, lifespan
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations import postponed
from tests.integrations.servers import uvicorn_serving

runs: Counter[str] = Counter()


class Thing(BaseModel):
    tag: str
    amount: int = 1


class Made(BaseModel):
    id: str = Field(serialization_alias="thingId")
    tag: str


def tenant() -> str:
    return "acct-1"


def made(tag: str) -> Made:
    runs[tag] += 1
    return Made(id=str(uuid4()), tag=tag)


@contextmanager
def serving(
    declare: Callable[[AsyncNebis, APIRouter], object], *, url: str = "memory://", **app_options: Any
) -> Iterator[Client]:
    """Serve an application with one router that `declare` fills."""
    nebis = AsyncNebis(url)
    router = APIRouter(route_class=NebisRoute)
    declare(nebis, router)
    app = FastAPI(lifespan=lifespan(nebis), **app_options)
    app.include_router(router)
    with uvicorn_serving(app) as address:
        yield Client(address)


def test_the_answer_of_a_response_model_comes_back_byte_for_byte() -> None:
    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things", status_code=201)
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant, store_headers=["X-Thing"])
        async def make(thing: Thing, response: Response) -> Made:
            response.headers["X-Thing"] = "yes"
            response.set_cookie("session", "secret")
            return made(thing.tag)

    with serving(declare) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert first.status == 201
    assert set(first.json()) == {"thingId", "tag"}
    assert (again.body, again.header("x-thing")) == (first.body, "yes")
    assert "session" in str(first.header("set-cookie"))
    assert again.header("set-cookie") is None
    assert runs[key] == 1


@pytest.mark.parametrize("is_handled", [False, True], ids=["unhandled", "handled"])
def test_a_session_whose_commit_fails_never_yields_a_success_and_the_retry_runs(is_handled: bool) -> None:
    class CommitFailed(Exception):
        pass

    commits: list[str] = []

    async def session() -> AsyncIterator[list[str]]:
        rows: list[str] = []
        yield rows
        if not commits:
            commits.append("failed")
            raise CommitFailed
        commits.extend(rows)

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Local, tenant=tenant)
        async def make(thing: Thing, rows: Annotated[list[str], Depends(session, scope="function")]) -> Made:
            rows.append(thing.tag)
            return made(thing.tag)

    async def explain(_request: Request, _error: Exception) -> Response:
        return JSONResponse({"sorry": True}, status_code=409)

    handlers = {CommitFailed: explain} if is_handled else {}
    with serving(declare, exception_handlers=handlers) as client:
        key = new_key()
        failed, retried, replayed = [client.post("/things", {"tag": key}, key=key) for _ in range(3)]

    assert failed.status == (409 if is_handled else 500)
    assert (retried.status, retried.is_replay) == (200, False)
    assert replayed.is_replay
    assert commits == ["failed", key]
    assert runs[key] == 2


def test_a_dependency_that_ends_after_the_answer_is_named_at_start_up(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that the endpoint knows nothing of, because whoever includes its router brings it."""

    async def late_session() -> AsyncIterator[str]:
        yield "session"

    async def early_session() -> AsyncIterator[str]:
        yield "session"

    def included_session() -> Iterator[None]:
        yield

    nebis, router = AsyncNebis("memory://"), APIRouter(route_class=NebisRoute)

    @router.post("/things")
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    async def make(
        late: Annotated[str, Depends(late_session)],
        early: Annotated[str, Depends(early_session, scope="function")],
    ) -> str:
        return late + early

    [route] = router.routes
    assert isinstance(route, NebisRoute)
    assert [name.rpartition(".")[2] for name in late_exits(route)] == ["late_session"]
    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(router, prefix="/v1", dependencies=[Depends(included_session)])
    with caplog.at_level(logging.WARNING, logger="nebis"), uvicorn_serving(app):
        pass

    named = [record.getMessage() for record in caplog.records if "ends after the answer" in record.getMessage()]
    assert [line.partition(" ends")[0].rpartition(".")[2] for line in named] == ["included_session", "late_session"]
    assert all(line.startswith("POST /v1/things: ") for line in named)


def test_a_body_that_a_dependency_reads_counts() -> None:
    async def from_body(thing: Annotated[Thing, Body(embed=True)]) -> Thing:
        return thing

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        async def make(thing: Annotated[Thing, Depends(from_body)]) -> Made:
            return made(thing.tag)

    with serving(declare) as client:
        key = new_key()
        first = client.post("/things", {"thing": {"tag": key}}, key=key)
        again = client.post("/things", {"thing": {"tag": key}}, key=key)
        other = client.post("/things", {"thing": {"tag": key, "amount": 2}}, key=key)

    assert [first.status, again.status] == [200, 200]
    assert again.is_replay
    assert (other.status, other.code) == (422, "key-reused")


def test_a_body_that_a_dependency_of_an_including_router_reads_counts() -> None:
    async def audited(reason: Annotated[str, Body(embed=True)]) -> str:
        return reason

    nebis, inner = AsyncNebis("memory://"), APIRouter(route_class=NebisRoute)

    @inner.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make(thing: Annotated[Thing, Body(embed=True)]) -> Made:
        return made(thing.tag)

    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(inner, prefix="/a", dependencies=[Depends(audited)])
    app.include_router(inner, prefix="/b", dependencies=[Depends(audited)])
    with uvicorn_serving(app) as address:
        client, key = Client(address), new_key()
        first = client.post("/a/things", {"thing": {"tag": key}, "reason": "x"}, key=key)
        again = client.post("/b/things", {"reason": "x", "thing": {"tag": key}}, key=key)
        other = client.post("/a/things", {"thing": {"tag": key}, "reason": "y"}, key=key)

    assert first.status == 200
    assert again.is_replay
    assert (other.status, other.code) == (422, "key-reused")


def test_a_file_counts_by_what_is_in_it_and_not_by_the_boundary_around_it() -> None:
    """F102."""

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/files")
        @idempotent(nebis, "upload", effects=Opaque, tenant=tenant)
        async def upload(note: Annotated[str, Form()], file: UploadFile) -> dict[str, Any]:
            runs[note] += 1
            return {"size": len(await file.read())}

    def sent(boundary: str, note: str, content: bytes) -> tuple[str, bytes]:
        mark = f"--{boundary}\r\nContent-Disposition: form-data; name="
        body = f'{mark}"note"\r\n\r\n{note}\r\n{mark}"file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
        return f"multipart/form-data; boundary={boundary}", body.encode() + content + f"\r\n--{boundary}--\r\n".encode()

    with serving(declare) as client:
        key = new_key()
        replies = []
        for boundary, content in (("one", b"hello"), ("two", b"hello"), ("one", b"HELLO")):
            kind, body = sent(boundary, key, content)
            replies.append(client.post("/files", body=body, content_type=kind, key=key))

    first, again, other = replies
    assert (first.status, first.json()) == (200, {"size": 5})
    assert again.is_replay
    assert (other.status, other.code) == (422, "key-reused")
    assert runs[key] == 1


def test_rows_and_the_rendered_answer_commit_together_on_a_blocking_facade(tmp_path: Path) -> None:
    """T1: a plain function gets a blocking attempt."""
    nebis, router = Nebis(f"sqlite:///{tmp_path / 'shop.db'}"), APIRouter(route_class=NebisRoute)

    @router.post("/things", status_code=201)
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    def make(thing: Thing, attempt: Attempt) -> Made:
        with attempt.transaction() as tx:
            tx.connection.execute("CREATE TABLE IF NOT EXISTS thing (tag TEXT PRIMARY KEY)")
            tx.connection.execute("INSERT INTO thing VALUES (?)", (thing.tag,))
            answer = made(thing.tag)
            tx.finish(answer)
        if thing.amount == 13:
            raise RuntimeError("after the commit")
        return Made(id="never sent", tag="never sent")

    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(router)
    with uvicorn_serving(app) as address:
        client, key, unlucky = Client(address), new_key(), new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]
        raised = client.post("/things", {"tag": unlucky, "amount": 13}, key=unlucky)

    assert (first.status, set(first.json())) == (201, {"thingId", "tag"})
    assert first.json()["tag"] == key
    assert (again.body, again.is_replay) == (first.body, True)
    assert (raised.status, raised.json()["tag"]) == (201, unlucky)
    assert runs[key] == runs[unlucky] == 1


def test_streams_and_files_are_gathered_and_replayed_behind_other_middleware(tmp_path: Path) -> None:
    """A1, A4, F088: the record and the answer agree although File- and StreamingResponse listen for disconnects."""
    (tmp_path / "a.txt").write_bytes(b"file" * 1000)

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/stream")
        @idempotent(nebis, "stream", effects=Opaque, tenant=tenant)
        async def stream() -> StreamingResponse:
            async def pieces() -> AsyncIterator[bytes]:
                for _ in range(100):
                    yield uuid4().bytes * 10
                    await asyncio.sleep(0)

            return StreamingResponse(pieces(), media_type="application/octet-stream")

        @router.post("/file")
        @idempotent(nebis, "file", effects=Opaque, tenant=tenant)
        async def file() -> FileResponse:
            return FileResponse(tmp_path / "a.txt")

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            return await call_next(request)

    nebis, router = AsyncNebis("memory://"), APIRouter(route_class=NebisRoute)
    declare(nebis, router)
    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(router)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(Passing)
    with uvicorn_serving(app) as address:
        client, key = Client(address), new_key()
        streams = [client.post("/stream", body=b"", key=key) for _ in range(2)]
        files = [client.post("/file", body=b"", key=key) for _ in range(2)]
        packed = client.post("/file", body=b"", key=key, headers=[("Accept-Encoding", "gzip")])

    assert [len(reply.body) for reply in streams] == [16_000, 16_000]
    assert streams[0].body == streams[1].body
    assert [reply.body for reply in files] == [b"file" * 1000] * 2
    assert packed.header("content-encoding") == "gzip"
    assert packed.is_replay


def test_middleware_that_gives_up_only_detaches_its_caller() -> None:
    """F075."""
    gate = asyncio.Event()

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/slow")
        @idempotent(nebis, "slow", effects=Opaque, tenant=tenant)
        async def slow(thing: Thing) -> Made:
            await gate.wait()
            return made(thing.tag)

    class Impatient(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            if request.headers.get("x-patience"):
                return await call_next(request)
            try:
                return await asyncio.wait_for(call_next(request), 0.1)
            except TimeoutError:
                gate.set()
                return Response(status_code=504)

    nebis, router = AsyncNebis("memory://"), APIRouter(route_class=NebisRoute)
    declare(nebis, router)
    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(router)
    app.add_middleware(Impatient)
    with uvicorn_serving(app) as address:
        client, key = Client(address), new_key()
        gave_up = client.post("/slow", {"tag": key}, key=key)
        replies = [client.post("/slow", {"tag": key}, key=key, headers=[("x-patience", "1")]) for _ in range(20)]

    assert gave_up.status == 504
    assert replies[-1].is_replay
    assert runs[key] == 1


def test_background_tasks_of_the_endpoint_run_once() -> None:
    """F089."""
    done: list[str] = []

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        async def make(thing: Thing, tasks: BackgroundTasks) -> Made:
            tasks.add_task(done.append, thing.tag)
            return made(thing.tag)

    with serving(declare) as client:
        key = new_key()
        for _ in range(3):
            client.post("/things", {"tag": key}, key=key)

    assert done == [key]


def test_a_deploy_that_adds_a_field_with_a_default_replays_the_bytes_of_the_old_one(tmp_path: Path) -> None:
    """F5, F104: what v2 stored, v3 replays."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    class NewThing(BaseModel):
        tag: str
        amount: int = 1
        currency: str = "EUR"

    NewThing.__name__ = "Thing"

    def old(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        async def make(thing: Thing) -> Made:
            return made(thing.tag)

    def new(nebis: AsyncNebis, router: APIRouter) -> None:
        async def make(thing: Any) -> dict[str, str]:
            return {"shape": "v3"}

        make.__annotations__["thing"] = NewThing
        router.post("/things")(idempotent(nebis, "make", effects=Opaque, tenant=tenant)(make))

    key = new_key()
    with serving(old, url=url) as client:
        first = client.post("/things", {"tag": key, "amount": 1}, key=key)
    with serving(new, url=url) as client:
        again = client.post("/things", {"tag": key}, key=key)
        other = client.post("/things", {"tag": key, "currency": "USD"}, key=key)

    assert (again.status, again.body, again.is_replay) == (200, first.body, True)
    assert (other.status, other.code) == (422, "key-reused")


def test_an_exception_of_the_application_can_bind_with_the_answer_it_is_handled_to() -> None:
    class Declined(Exception):
        pass

    async def explain(_request: Request, _error: Exception) -> Response:
        return JSONResponse({"declined": str(uuid4())}, status_code=418)

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant, binds=[Declined])
        async def make(thing: Thing) -> Made:
            runs[thing.tag] += 1
            raise Declined

    with serving(declare, exception_handlers={Declined: explain}) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert (first.status, again.status) == (418, 418)
    assert again.body == first.body
    assert runs[key] == 1


def test_authorize_may_refuse_what_is_stored() -> None:
    def allowed(x_role: Annotated[str, Header()] = "") -> None:
        if x_role != "payer":
            raise HTTPException(403)

    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @router.post("/things")
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant, authorize=allowed)
        async def make(thing: Thing) -> Made:
            return made(thing.tag)

    with serving(declare) as client:
        key = new_key()
        first = client.post("/things", {"tag": key}, key=key, headers=[("X-Role", "payer")])
        refused = client.post("/things", {"tag": key}, key=key)

    assert (first.status, refused.status) == (200, 403)


def test_an_operation_is_bound_to_a_route_and_its_attempt_to_the_operation() -> None:
    def declare(nebis: AsyncNebis, router: APIRouter) -> None:
        @nebis.operation("make", effects=Local)
        async def make(attempt: AsyncAttempt, command: Thing) -> Made:
            return made(command.tag)

        @router.post("/things")
        @bind(make, tenant=tenant, status=201)
        async def things(thing: Thing) -> Thing:
            return thing

    with serving(declare) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]
        missing = client.post("/things", {"tag": key})

    assert (first.status, first.json()["tag"], first.is_replay) == (201, key, False)
    assert (again.status, again.body, again.is_replay) == (201, first.body, True)
    assert (missing.status, missing.code) == (400, "key-missing")
    assert runs[key] == 1


def test_an_endpoint_outside_a_route_of_ours_runs_nothing() -> None:
    nebis, app = AsyncNebis("memory://"), FastAPI()

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make(thing: Thing) -> Made:
        return made(thing.tag)

    with uvicorn_serving(app) as address:
        key = new_key()
        reply = Client(address).post("/things", {"tag": key}, key=key)

    assert reply.status == 500
    assert runs[key] == 0


def test_an_endpoint_that_yields_its_answer_is_refused_at_start_up() -> None:
    """F083."""
    with pytest.raises(ConfigError, match="piece by piece"):

        @idempotent(AsyncNebis("memory://"), "make", effects=Opaque, tenant=tenant)
        async def make() -> AsyncIterator[bytes]:
            yield b""


@pytest.mark.parametrize("nebis", [Nebis("memory://"), AsyncNebis("memory://")], ids=["blocking", "asyncio"])
def test_an_endpoint_and_its_facade_have_to_fit(nebis: Nebis | AsyncNebis) -> None:
    async def on_the_loop() -> None: ...
    def on_a_thread(attempt: Attempt) -> None: ...

    with pytest.raises(ConfigError):
        idempotent(nebis, "make", effects=Opaque, tenant=tenant)(
            on_the_loop if isinstance(nebis, Nebis) else on_a_thread
        )


def test_annotations_may_be_postponed() -> None:
    with serving(postponed.declare) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert (first.status, first.json()) == (200, {"tag": key})
    assert again.is_replay
