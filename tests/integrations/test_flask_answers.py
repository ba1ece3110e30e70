"""What is particular to Flask: error handlers, hooks, forms, files, streams and coroutines."""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    got_request_exception,
    jsonify,
    redirect,
    request,
    send_file,
    session,
    stream_with_context,
)

from nebis import Attempt, Local, Nebis, Opaque, Rejected
from nebis.http import Reconstruct
from nebis.integrations.flask import idempotent
from nebis.testing.http_conformance.client import new_key
from tests.integrations.flask_shop import serving, tenant, twice


@pytest.fixture
def nebis() -> Iterator[Nebis]:
    with Nebis("memory://") as opened:
        yield opened


@pytest.fixture
def app() -> Flask:
    made = Flask(__name__)
    made.secret_key = "secret"
    return made


def test_error_handlers_of_a_blueprint_render_what_is_stored(app: Flask, nebis: Nebis) -> None:
    class OutOfStock(Exception):
        """An exception of the application."""

    shop = Blueprint("shop", __name__, url_prefix="/shop")

    @shop.errorhandler(OutOfStock)
    def out_of_stock(_error: OutOfStock) -> tuple[Response, int]:
        return jsonify(sold=str(uuid4())), 409

    @shop.errorhandler(404)
    def missing(_error: Exception) -> tuple[str, int]:
        return f"none such {uuid4()}", 404

    @shop.post("/things/<int:number>")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make(number: int) -> str:
        if number == 404:
            abort(404)
        raise OutOfStock

    app.register_blueprint(shop)
    with serving(app) as client:
        gone = twice(client, "/shop/things/404")
        sold = twice(client, "/shop/things/1")

    for (first, again), status in ((gone, 404), (sold, 409)):
        assert (first.status, again.status) == (status, status)
        assert (again.body, again.is_replay) == (first.body, True)


def test_an_abort_with_a_redirect_is_an_answer(app: Flask, nebis: Nebis) -> None:
    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make() -> str:
        abort(redirect(f"/things/{uuid4()}", 303))

    with serving(app) as client:
        first, again = twice(client)

    assert (first.status, again.status) == (303, 303)
    assert first.header("location") == again.header("location")
    assert again.is_replay


def test_a_catch_all_handler_does_not_hide_what_a_view_says_to_us(app: Flask, nebis: Nebis) -> None:
    @app.errorhandler(Exception)
    def broken(_error: Exception) -> tuple[str, int]:
        return "broken", 500

    @app.post("/rejected")
    @idempotent(nebis, "reject", effects=Opaque, tenant=tenant)
    def reject() -> str:
        raise Rejected("card-declined")

    @app.post("/crashed")
    @idempotent(nebis, "crash", effects=Local, tenant=tenant)
    def crash() -> str:
        raise RuntimeError

    with serving(app) as client:
        rejected = twice(client, "/rejected")
        crashed = twice(client, "/crashed")

    assert [(reply.status, reply.code) for reply in rejected] == [(422, "rejected")] * 2
    assert [(reply.status, reply.body, reply.is_replay) for reply in crashed] == [(500, b"broken", False)] * 2


def test_an_exception_whose_place_a_problem_takes_still_reaches_the_error_tracker(
    app: Flask, nebis: Nebis, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Exception] = []

    def track(_app: Flask, exception: Exception, **_more: Any) -> None:
        seen.append(exception)

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make() -> str:
        raise RuntimeError("after the charge")

    with got_request_exception.connected_to(track, app), serving(app) as client:
        first, again = twice(client)

    assert [(reply.status, reply.code) for reply in (first, again)] == [(409, "outcome-unknown")] * 2
    assert [str(error) for error in seen] == ["after the charge"]
    assert "Exception on /things" in caplog.text


def test_files_and_streams_are_stored_whole_and_closed_once_sent(app: Flask, nebis: Nebis) -> None:
    closed: Counter[str] = Counter()

    @app.post("/file")
    @idempotent(nebis, "file", effects=Opaque, tenant=tenant)
    def file() -> Response:
        response = send_file(io.BytesIO(uuid4().bytes * 1000), mimetype="application/octet-stream")
        response.call_on_close(lambda: closed.update(["file"]))
        return response

    @app.post("/stream")
    @idempotent(nebis, "stream", effects=Opaque, tenant=tenant)
    def stream() -> Response:
        def pieces() -> Iterator[str]:
            yield request.path
            yield str(uuid4())

        return Response(stream_with_context(pieces()), mimetype="text/plain")

    with serving(app) as client:
        files = twice(client, "/file")
        streams = twice(client, "/stream")

    for first, again in (files, streams):
        assert first.status == 200
        assert (again.body, again.is_replay) == (first.body, True)
    assert len(files[0].body) == 16_000
    assert closed == Counter({"file": 1})


def test_a_stream_that_breaks_sends_nothing_and_frees_its_key(app: Flask, nebis: Nebis) -> None:
    breaks = [True]

    @app.post("/things")
    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    def make() -> Response:
        def pieces() -> Iterator[str]:
            yield "half"
            if breaks:
                breaks.pop()
                raise RuntimeError("broken")
            yield " and half"

        return Response(pieces())

    with serving(app) as client:
        key = new_key()
        broken, whole, again = [client.post("/things", {}, key=key) for _ in range(3)]

    assert (broken.status, b"half" in broken.body) == (500, False)
    assert (whole.status, whole.body, whole.is_replay) == (200, b"half and half", False)
    assert (again.body, again.is_replay) == (whole.body, True)


def test_coroutine_views_and_functions_work_alike(app: Flask, nebis: Nebis) -> None:
    async def whose() -> str:
        await asyncio.sleep(0)
        return "acct-1"

    async def amount() -> int:
        return int(request.get_json()["amount"])

    async def rebuild(_reference: Any) -> dict[str, str]:
        return {"id": "rebuilt"}

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=whose, command=amount)
    async def make(attempt: Attempt) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"id": str(attempt.new_id("thing"))}

    @app.post("/rebuilt")
    @idempotent(
        nebis,
        "rebuild",
        effects=Opaque,
        tenant=whose,
        reconstruct=Reconstruct(refer=lambda answer: str(answer["id"]), rebuild=rebuild, schema="v1"),
    )
    async def make_rebuilt() -> dict[str, str]:
        return {"id": "made"}

    with serving(app) as client:
        first, again = twice(client, command={"amount": 5})
        rebuilt = twice(client, "/rebuilt")

    assert first.status == 200
    assert (again.body, again.is_replay) == (first.body, True)
    assert [reply.json()["id"] for reply in rebuilt] == ["made", "rebuilt"]


def test_a_hook_may_read_the_body_if_it_keeps_it(app: Flask, nebis: Nebis) -> None:
    """F2: what was read and dropped cannot be compared, so nothing runs."""
    runs: list[str] = []

    @app.before_request
    def hook() -> None:
        if request.path == "/dropped":
            request.stream.read()
        else:
            request.get_json()

    @app.post("/kept")
    @idempotent(nebis, "kept", effects=Opaque, tenant=tenant)
    def kept() -> dict[str, Any]:
        return {"id": str(uuid4()), "body": request.get_json()}

    @app.post("/dropped")
    @idempotent(nebis, "dropped", effects=Opaque, tenant=tenant)
    def dropped() -> str:
        runs.append("dropped")
        return ""

    with serving(app) as client:
        key = new_key()
        first = client.post("/kept", {"a": 1}, key=key)
        other = client.post("/kept", {"a": 2}, key=key)
        unknown = client.post("/dropped", {"a": 1}, key=key)

    assert first.json()["body"] == {"a": 1}
    assert (other.status, other.code) == (422, "key-reused")
    assert unknown.status == 500
    assert not runs


def upload(content: bytes, *, boundary: str, note: str = "n") -> dict[str, Any]:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="note"\r\n\r\n{note}\r\n'.encode(),
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n'.encode(),
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n",
        f"--{boundary}--\r\n".encode(),
    ]
    return {"body": b"".join(parts), "content_type": f"multipart/form-data; boundary={boundary}"}


@pytest.mark.parametrize("is_parsed_before", [False, True], ids=["by us", "by a hook"])
def test_a_form_counts_by_its_fields_and_files(app: Flask, nebis: Nebis, is_parsed_before: bool) -> None:
    @app.before_request
    def hook() -> None:
        if is_parsed_before:
            assert request.form["note"]

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make() -> dict[str, Any]:
        return {"size": len(request.files["file"].read()), "note": request.form["note"], "id": str(uuid4())}

    with serving(app) as client:
        key = new_key()
        first = client.post("/things", key=key, **upload(b"\x00\x01", boundary="one"))
        again = client.post("/things", key=key, **upload(b"\x00\x01", boundary="two"))
        others = [
            client.post("/things", key=key, **upload(b"\x00\x02", boundary="one")),
            client.post("/things", key=key, **upload(b"\x00\x01", boundary="one", note="m")),
        ]

    assert (first.json()["size"], first.json()["note"]) == (2, "n")
    assert (again.body, again.is_replay) == (first.body, True)
    assert [(reply.status, reply.code) for reply in others] == [(422, "key-reused")] * 2


def test_hooks_and_the_session_are_around_a_replay_too(app: Flask, nebis: Nebis) -> None:
    torn_down: list[str] = []

    @app.after_request
    def stamp(response: Response) -> Response:
        response.headers["X-Request"] = str(uuid4())
        return response

    @app.teardown_request
    def teardown(_error: BaseException | None) -> None:
        torn_down.append(request.path)

    @app.before_request
    def count() -> None:
        session["count"] = session.get("count", 0) + 1

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make() -> dict[str, str]:
        return {"id": str(uuid4())}

    with serving(app) as client:
        first, again = twice(client)

    assert again.body == first.body
    assert first.header("x-request") != again.header("x-request")
    assert first.header("set-cookie")
    assert again.header("set-cookie")
    assert torn_down == ["/things", "/things"]


def test_an_answer_of_no_known_kind_is_in_doubt_after_an_opaque_view(app: Flask, nebis: Nebis) -> None:
    """F084: a view that returned nothing did its work; Flask finds out only afterwards."""

    @app.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    def make() -> Any:
        return None

    with serving(app) as client:
        replies = twice(client)

    assert [(reply.status, reply.code) for reply in replies] == [(409, "outcome-unknown")] * 2
