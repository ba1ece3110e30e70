"""Any WSGI application, protected from outside: rules by method and path, for a whole API at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from nebis.errors import NebisError
from nebis.http.exchange import Exchange
from nebis.http.tokens import LARGEST_ASK_BYTES
from nebis.http.wire import Wire
from nebis.integrations.blocking import Held, Live, claim, issue_token, read_status, require_blocking
from nebis.integrations.routetable import TOLD, announce_inside
from nebis.integrations.rules import ATTEMPT, Matching, Rule, rendered, rule
from nebis.integrations.tokens import checked_lifetime, refused
from nebis.integrations.wsgi_request import headers_of, incoming, path_of, peer_of, send, take_body
from nebis.sync import Nebis

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["ATTEMPT", "Protected", "idempotency_tokens", "operation_status", "rule"]

log = logging.getLogger("nebis")

# Ways to send bytes that would pass us by unseen.
_PASSING_BY = ("wsgi.file_wrapper", "wsgi.early_hints", "gunicorn.http2.send_trailers")


class Protected:
    """A WSGI application whose requests are claimed before it sees them, by the first rule that matches.

    At the first request the log says which routes are protected and how, and which are not.
    """

    def __init__(self, app: WSGIApplication, *, rules: Sequence[Rule[Nebis]]) -> None:
        for one in rules:
            require_blocking(one.nebis, Nebis, one.protection.name)
        self.app = app
        self.rules = tuple(rules)
        self._matching = Matching(self.rules).first
        self._has_begun = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Claim, run and settle if a rule is for the request; otherwise pass it on as it is."""
        if not self._has_begun:
            # Only now are all routes known, and what else is around.
            self._has_begun = True
            announce_inside(self, environ)
        environ[TOLD] = True
        found = self._matching(environ["REQUEST_METHOD"], path_of(environ))
        if found is None:
            return self.app(environ, start_response)
        try:
            held = _claimed(found, environ)
        except NebisError as error:
            return send(found.protection.refused(error), start_response)
        if isinstance(held, Exchange):
            return send(held, start_response)
        environ[ATTEMPT] = None if held is None else held.attempt
        if held is None:
            return self.app(environ, start_response)
        kept = {name: environ.pop(name) for name in _PASSING_BY if name in environ}
        limit_bytes = found.protection.storage.limit_bytes
        try:
            answer = held.run(lambda: gathered(self.app, environ, limit_bytes), unseen=_log)
        finally:
            # In place: a copy would hide from middleware outside what the application notes, and servers look again.
            environ.update(kept)
        return send(answer, start_response)


def operation_status(
    nebis: Nebis, *, tenant: Callable[[WSGIEnvironment], Any], wire: Wire | None = None
) -> WSGIApplication:
    """Make the application of `GET /operations/{id}`: the status of an operation, for its own tenant only.

    Mount it where you like: the id is the last part of the path.
    """

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET":
            return send(Exchange(status=405, headers=(("allow", "GET"),)), start_response)
        operation_id = path_of(environ).rpartition("/")[2]
        return send(read_status(nebis, operation_id, tenant(environ), wire), start_response)

    return application


def idempotency_tokens(
    nebis: Nebis,
    *,
    tenant: Callable[[WSGIEnvironment], Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> WSGIApplication:
    """Make the application of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`."""
    lifetime = checked_lifetime(lifetime)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            return send(Exchange(status=405, headers=(("allow", "POST"),)), start_response)
        owner, headers = tenant(environ), headers_of(environ)
        try:
            body = take_body(environ, limit_bytes=LARGEST_ASK_BYTES)
        except NebisError as error:
            return send(refused(error, wire), start_response)
        answer = issue_token(nebis, body, headers, owner, lifetime=lifetime, wire=wire)
        return send(answer, start_response)

    return application


def gathered(app: WSGIApplication, environ: WSGIEnvironment, limit_bytes: int) -> Live:
    """Run an application to the end of its answer, its `close` included, and return what it said.

    Nothing was sent yet, so that an application may still take its answer back, as PEP 3333 lets it. Of an answer
    above the cap only as much is kept as shows that it is.
    """
    started: list[tuple[str, list[tuple[str, str]], BaseException | None]] = []
    body = bytearray()

    def write(chunk: bytes) -> None:
        body.extend(chunk[: limit_bytes + 1 - len(body)])

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        if started and exc_info is None:
            raise RuntimeError("start_response was called twice without exc_info.")
        if exc_info is not None:
            body.clear()
        started[:] = [(status, headers, None if exc_info is None else exc_info[1])]
        return write

    chunks = app(environ, cast("StartResponse", start_response))
    try:
        for chunk in chunks:
            write(chunk)
    finally:
        # Before anything is stored: an application may commit here, and fail.
        if hasattr(chunks, "close"):
            chunks.close()
    if not started:
        raise RuntimeError("The application ended without an answer.")
    status, headers, error = started[0]
    exchange = Exchange(status=int(status[:3]), headers=tuple(headers), body=bytes(body))
    return exchange, error if isinstance(error, Exception) else None


def _claimed(found: Rule[Nebis], environ: WSGIEnvironment) -> Held | Exchange | None:
    protection = found.protection
    tenant: Any
    if callable(protection.tenant):
        tenant = protection.tenant(environ)
    else:
        tenant = protection.given_tenant(peer_of(environ), headers_of(environ))
    arrived = incoming(environ, limit_bytes=protection.body_limit_bytes)
    return claim(protection, found.nebis, arrived, tenant, rendered)


def _log(error: Exception) -> None:
    """Tell of an exception that the server does not get to see, as its caller is told a problem."""
    log.error("a protected application raised %s", type(error).__name__, exc_info=error)
