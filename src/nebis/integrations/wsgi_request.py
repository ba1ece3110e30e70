"""A WSGI request: its headers, its query, and its body, read whole before anything is claimed."""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from nebis.errors import BodyRefused, BodyTooLarge
from nebis.http.body import BodyBuffer, json_of
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs
from nebis.http.query import query_pairs
from nebis.integrations.protection import Incoming, make_incoming

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_PIECE_BYTES = 64 * 1024
_PATIENCE_BYTES = 1024 * 1024
"""How much of a body that is too large is read and dropped: hanging up on who still sends would hide our answer."""
_CUT_OFF = "it ended before it was whole"


def headers_of(environ: WSGIEnvironment) -> HeaderPairs:
    """Return the headers of a request; the server has joined those that came twice with a comma."""
    given = [(name[5:], value) for name, value in environ.items() if name.startswith("HTTP_")]
    given += [(name, environ[name]) for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)]
    return tuple((name.replace("_", "-").title(), str(value)) for name, value in given)


def peer_of(environ: WSGIEnvironment) -> str | None:
    """Return who is at the other end of the connection, whatever a header says about whom it speaks for."""
    replaced: dict[str, Any] = environ.get("werkzeug.proxy_fix.orig") or environ
    return replaced.get("REMOTE_ADDR") or None


def path_of(environ: WSGIEnvironment) -> str:
    """Return the path below the place where the application is mounted, as people write it."""
    raw: str = environ.get("PATH_INFO", "")
    return raw.encode("latin-1").decode("utf-8", "replace")


def incoming(environ: WSGIEnvironment, *, limit_bytes: int) -> Incoming:
    """Read all of a request, to its clean end, before anything is claimed (F080, F081)."""
    headers = headers_of(environ)
    body = take_body(environ, limit_bytes=limit_bytes)
    return make_incoming(
        method=environ["REQUEST_METHOD"],
        headers=headers,
        query=query_pairs(environ.get("QUERY_STRING", "")),
        # Without a router the whole path counts.
        path={"path": environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")},
        body=body,
        tree=json_of(body, headers, limit_bytes=limit_bytes),
        peer=peer_of(environ),
    )


def take_body(environ: WSGIEnvironment, *, limit_bytes: int) -> bytes:
    """Read the body under its cap and put it back for the application; raise `BodyTooLarge` or `BodyRefused`."""
    body = _read(environ, limit_bytes)
    environ["wsgi.input"] = io.BytesIO(body)
    environ["wsgi.input_terminated"] = True
    environ["CONTENT_LENGTH"] = str(len(body))
    # It has a length now: who saw both would have to choose.
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return body


def _read(environ: WSGIEnvironment, limit_bytes: int) -> bytes:
    length = _length(environ)
    if length == 0:
        return b""
    arriving = BodyBuffer(limit_bytes)
    left = length
    try:
        while not arriving.is_whole:
            piece = environ["wsgi.input"].read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
            if left is not None:
                left -= len(piece)
                if not piece:
                    raise BodyRefused(_CUT_OFF)
            # Without a length, nothing more is how a server that counts chunks says that the last one came.
            arriving.add(piece, is_last=left == 0 if left is not None else not piece)
    except BodyTooLarge:
        _drop(environ, left)
        raise
    except OSError:
        raise BodyRefused(_CUT_OFF) from None
    return arriving.bytes()


def _length(environ: WSGIEnvironment) -> int | None:
    """Return how long the body is; None if its end is known to the server alone."""
    given = environ.get("CONTENT_LENGTH") or ""
    if given:
        # Digits alone: int() would also take a sign, a space or an underscore.
        if not (given.isascii() and given.isdigit()):
            raise BodyRefused("its length is no number")
        return int(given)
    if environ.get("wsgi.input_terminated"):
        return None
    if environ.get("HTTP_TRANSFER_ENCODING"):
        raise BodyRefused("this server does not say where a body without a length ends; send Content-Length")
    return 0


def _drop(environ: WSGIEnvironment, left: int | None) -> None:
    remaining = _PATIENCE_BYTES if left is None else min(left, _PATIENCE_BYTES)
    try:
        while remaining > 0:
            piece = environ["wsgi.input"].read(min(remaining, _PIECE_BYTES))
            if not piece:
                return
            remaining -= len(piece)
    except OSError:
        return


def send(exchange: Exchange, start_response: StartResponse) -> list[bytes]:
    """Begin an answer and return its body, as a WSGI application does."""
    start_response(_status_line(exchange.status), list(exchange.framed()))
    return [exchange.body] if exchange.body else []


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
