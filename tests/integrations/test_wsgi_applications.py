"""What WSGI applications may do: write, take an answer back, close, break off; and what arrives at them."""

import io
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.util import setup_testing_defaults

import pytest

from nebis import AsyncNebis, ConfigError, Local, Nebis, Opaque, Rejected
from nebis.errors import BodyRefused, BodyTooLarge
from nebis.integrations.wsgi import ATTEMPT, Protected, operation_status, rule
from nebis.integrations.wsgi_request import take_body
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key, read
from tests.integrations.wsgi_servers import gunicorn_serving, waitress_serving

JSON = [("Content-Type", "application/json")]


def protected(nebis: Nebis, app: Any, pattern: str = "POST /things", **options: Any) -> Protected:
    choices = {"effects": Local, "tenant": lambda _environ: "acct-1", **options}
    return Protected(app, rules=[rule(nebis, pattern, "make", **choices)])


@contextmanager
def serving(app: Any, pattern: str = "POST /things", **options: Any) -> Iterator[Client]:
    with Nebis("memory://") as nebis, waitress_serving(protected(nebis, app, pattern, **options)) as address:
        yield Client(address)


def called(app: Any, **given: Any) -> tuple[str, bytes]:
    """Call an application as a server does, where what is tested is what it does to its server."""
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    environ.update({"REQUEST_METHOD": "POST", "PATH_INFO": "/things", **given})
    told: list[str] = []
    body = b"".join(app(environ, lambda status, _headers, _exc_info=None: told.append(status)))
    return told[-1], body


def test_what_is_written_comes_before_what_is_returned_and_all_of_it_is_replayed() -> None:
    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", JSON)
        write(b'{"id": ')
        return [b'"', str(uuid4()).encode(), b'"}']

    with serving(app) as client:
        key = new_key()
        first, again = [client.post("/things", {}, key=key) for _ in range(2)]

    assert first.json()["id"]
    assert (again.body, again.is_replay) == (first.body, True)


def test_an_application_may_begin_its_answer_when_it_is_asked_for_the_first_chunk() -> None:
    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("201 Created", JSON)
        yield b'"'
        yield str(uuid4()).encode()
        yield b'"'

    with serving(app) as client:
        key = new_key()
        first, again = [client.post("/things", {}, key=key) for _ in range(2)]

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body


def test_an_answer_that_is_taken_back_is_not_told() -> None:
    """PEP 3333: with exc_info an application replaces what it has begun, and the exception says how it ended."""
    runs: list[int] = []

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", JSON)
        write(b"half of an answer")
        runs.append(1)
        declined = Rejected("card-declined")
        start_response("400 Bad Request", JSON, (Rejected, declined, None))
        return [b'{"declined": true}']

    with serving(app) as client:
        key = new_key()
        first, again = [client.post("/things", {}, key=key) for _ in range(2)]

    assert (first.status, first.body) == (400, b'{"declined": true}')
    assert (again.status, again.body, again.is_replay) == (400, first.body, True), "the status alone would not bind"
    assert len(runs) == 1


def _twice(_environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", JSON)
    start_response("200 OK", JSON)
    return []


def _never(_environ: Any, _start_response: Any) -> Iterable[bytes]:
    return [b"an answer without a beginning"]


@pytest.mark.parametrize("app", [_twice, _never])
def test_an_application_that_breaks_the_rules_of_wsgi_is_told_nothing_and_stored_nothing(app: Any) -> None:
    with Nebis("memory://") as nebis, pytest.raises(RuntimeError):
        called(protected(nebis, app), HTTP_IDEMPOTENCY_KEY=new_key())


class _Closing:
    """An answer that commits when it is closed, as some middleware does."""

    def __init__(self, events: list[str], *, fails: bool) -> None:
        self._events = events
        self._fails = fails

    def __iter__(self) -> Iterator[bytes]:
        self._events.append("sent")
        yield b'"made"'

    def close(self) -> None:
        self._events.append("closed")
        if self._fails:
            raise RuntimeError("the commit failed")


def test_a_commit_that_fails_while_the_answer_is_closed_is_never_a_success_and_the_retry_runs() -> None:
    events: list[str] = []

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("201 Created", JSON)
        return _Closing(events, fails="closed" not in events)

    with serving(app) as client:
        key = new_key()
        failed, whole, again = [client.post("/things", {}, key=key) for _ in range(3)]

    assert [failed.status, whole.status, again.status] == [500, 201, 201]
    assert events == ["sent", "closed", "sent", "closed"]
    assert again.is_replay


def test_a_file_that_the_server_would_send_by_itself_is_stored_first() -> None:
    content = [b"one content", b"another content"]

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "application/octet-stream")])
        wrapper: Callable[[Any], Iterable[bytes]] = environ.get("wsgi.file_wrapper", lambda file: file)
        return wrapper(io.BytesIO(content.pop()))

    with serving(app) as client:
        key = new_key()
        first, again = [client.post("/things", {}, key=key) for _ in range(2)]

    assert (first.status, first.body) == (200, b"another content")
    assert (again.body, again.is_replay) == (first.body, True)


def test_a_worker_that_is_stopped_in_the_middle_leaves_the_key_to_the_lease() -> None:
    """A5: gunicorn stops a worker that takes too long by raising SystemExit in it; what it did may have happened."""
    stops = [True]

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        if stops.pop():
            raise SystemExit(1)
        start_response("200 OK", [])
        return []

    with Nebis("memory://") as nebis:
        wrapped, key = protected(nebis, app), new_key()
        with pytest.raises(SystemExit):
            called(wrapped, HTTP_IDEMPOTENCY_KEY=key)
        status, body = called(wrapped, HTTP_IDEMPOTENCY_KEY=key)

    assert status == "409 Conflict"
    assert json.loads(body)["type"].endswith("in-flight")


def test_an_exception_whose_place_a_problem_takes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def app(_environ: Any, _start_response: Any) -> Iterable[bytes]:
        raise RuntimeError("after the charge")

    with Nebis("memory://") as nebis, caplog.at_level(logging.ERROR, logger="nebis"):
        status, _ = called(protected(nebis, app, effects=Opaque), HTTP_IDEMPOTENCY_KEY=new_key())

    assert status == "409 Conflict"
    assert "after the charge" in str(caplog.records[-1].exc_info)


def test_a_body_whose_end_the_server_does_not_know_is_refused_and_nothing_runs() -> None:
    """F080: to an application the server of the standard library gives the bytes of the chunks themselves."""
    runs: list[int] = []

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        runs.append(1)
        start_response("200 OK", [])
        return []

    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the standard library.
            pass

    with (
        Nebis("memory://") as nebis,
        make_server("127.0.0.1", 0, protected(nebis, app), handler_class=Silent) as server,
    ):
        serving_one = threading.Thread(target=server.handle_request)
        serving_one.start()
        client = Client(("127.0.0.1", server.server_port))
        with client.connect() as connection:
            head = client.request("POST", "/things", b"", key=new_key(), is_chunked=True)
            connection.sendall(head + b"2\r\n{}\r\n0\r\n\r\n")
            reply = read(connection)
        serving_one.join()

    assert (reply.status, reply.code) == (400, "body-refused")
    assert not runs


def test_a_body_in_chunks_has_a_length_for_the_application() -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", JSON)
        assert "HTTP_TRANSFER_ENCODING" not in environ
        return [environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))]

    with Nebis("memory://") as nebis, gunicorn_serving(protected(nebis, app), is_sync=True) as address:
        client = Client(address)
        with client.connect() as connection:
            head = client.request("POST", "/things", b"", key=new_key(), is_chunked=True)
            connection.sendall(head + b'5\r\n{"a":\r\n3\r\n 1}\r\n0\r\n\r\n')
            reply = read(connection)

    assert reply.json() == {"a": 1}


@pytest.mark.parametrize("length", ["-1", "+2", "1_0", " 2", "two", "\u0662"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    with pytest.raises(BodyRefused, match="no number"):
        take_body({"CONTENT_LENGTH": length, "wsgi.input": io.BytesIO(b"{}")}, limit_bytes=10)


def test_a_body_is_read_to_its_length_and_no_further() -> None:
    """F081: what follows belongs to the next request."""
    stream = io.BytesIO(b"{}POST /next")

    assert take_body({"CONTENT_LENGTH": "2", "wsgi.input": stream}, limit_bytes=10) == b"{}"
    assert stream.read() == b"POST /next"
    with pytest.raises(BodyRefused, match="before it was whole"):
        take_body({"CONTENT_LENGTH": "3", "wsgi.input": io.BytesIO(b"{}")}, limit_bytes=10)


def test_a_body_above_its_cap_is_dropped_up_to_a_point() -> None:
    """F079: a client that never stops cannot keep a thread."""
    endless = io.BytesIO(b"x" * (8 * 1024 * 1024))

    with pytest.raises(BodyTooLarge):
        take_body({"wsgi.input_terminated": True, "wsgi.input": endless}, limit_bytes=10)

    assert endless.tell() < 2 * 1024 * 1024


def test_a_rule_is_for_its_paths_alone_and_the_path_counts() -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", JSON)
        return [json.dumps({"id": str(uuid4()), "is_protected": environ.get(ATTEMPT) is not None}).encode()]

    with serving(app, "POST /caf\u00e9/*/payments") as client:
        key = new_key()
        first, again = [client.post("/caf%C3%A9/17/payments", {}, key=key) for _ in range(2)]
        other = client.post("/caf%C3%A9/18/payments", {}, key=key)
        beside = [client.post("/caf%C3%A9/payments", {}, key=key) for _ in range(2)]

    assert first.json()["is_protected"]
    assert again.body == first.body
    assert (other.status, other.code) == (422, "key-reused")
    assert not any(reply.json()["is_protected"] or reply.is_replay for reply in beside)
    assert beside[0].body != beside[1].body


def test_the_status_of_operations_can_only_be_read() -> None:
    with Nebis("memory://") as nebis:
        app = operation_status(nebis, tenant=lambda _environ: "acct-1")

        assert called(app, REQUEST_METHOD="GET", PATH_INFO="/deep/below/none")[0] == "404 Not Found"
        assert called(app, REQUEST_METHOD="DELETE", PATH_INFO="/none")[0] == "405 Method Not Allowed"


def test_a_rule_of_the_asyncio_facade_is_refused_at_start_up() -> None:
    made: Any = rule(AsyncNebis("memory://"), "POST /things", "make", effects=Local, tenant=lambda _: "acct-1")

    with pytest.raises(ConfigError, match="in place of AsyncNebis"):
        Protected(_never, rules=[made])
