"""A request of Django as the engine sees it: read whole, under a cap, before anything is claimed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from nebis.errors import BodyRefused, BodyTooLarge, ConfigError
from nebis.extras import needed
from nebis.http.body import json_of
from nebis.http.headers import HeaderPairs, decoded
from nebis.http.query import query_pairs
from nebis.integrations.protection import Admission, Incoming, make_incoming
from nebis.integrations.rules import ATTEMPT

with needed("django"):
    from django.core.exceptions import RequestDataTooBig
    from django.http import HttpRequest, UnreadablePostError
    from django.http.request import RawPostDataException


def request_of(arguments: tuple[Any, ...]) -> Any:
    """Find the request: the first argument of a function, the second of a method."""
    return next(argument for argument in arguments if isinstance(argument, HttpRequest))


def incoming(
    request: Any, admission: Admission, *, parsed: Callable[[], object] | None = None, has_form: bool = False
) -> Incoming:
    """Read a request to its clean end, and parse it strictly before any view does (F080, F081, F100).

    `parsed` gives the body as a framework has parsed it; by default as Django's forms have.
    """
    if ATTEMPT in request.META:
        raise ConfigError([f"endpoint {admission.name!r} is protected twice; protect it by a rule or a decorator"])
    headers = headers_of(request)
    raw = _body(request, admission.body_limit_bytes)
    read = parsed or (lambda: form_of(request))
    if has_form or request.content_type == "multipart/form-data":
        # By what is in it: the boundary around its parts is another one at each try (F102).
        tree: object = read()
    elif raw is not None:
        tree = json_of(raw, headers, limit_bytes=admission.body_limit_bytes)
    elif parsed is not None:
        tree = parsed()
    else:
        raise ConfigError(
            [f"endpoint {admission.name!r}: the body was read as a stream before the claim; read request.body instead"]
        )
    return make_incoming(
        method=request.method,
        headers=headers,
        query=query_pairs(_query(request)),
        path=_path(request),
        body=raw or b"",
        tree=tree,
        peer=request.META.get("REMOTE_ADDR"),
    )


def headers_of(request: Any) -> HeaderPairs:
    """Return the headers of a request, as they came where the server tells that."""
    scope = getattr(request, "scope", None)
    return tuple(request.headers.items()) if scope is None else decoded(scope.get("headers", ()))


def form_of(request: Any) -> dict[str, Any]:
    """Return what of a form counts: its fields and, by name, type and content, its files."""
    fields = {name: list(values) for name, values in request.POST.lists()}
    files = {name: [file_of(file) for file in found] for name, found in request.FILES.lists()}
    return {"fields": fields, "files": files}


def file_of(file: Any) -> list[Any]:
    """Return what of an uploaded file counts, and leave it as it was."""
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return [file.name, file.content_type, digest.digest()]


def _body(request: Any, limit_bytes: int) -> bytes | None:
    """Return the body, or None if somebody has consumed it already."""
    length = _length(request)
    if length is not None and length > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    if length is None and not hasattr(request, "scope") and "HTTP_TRANSFER_ENCODING" in request.META:
        raise BodyRefused("it comes in chunks, of which Django reads nothing under WSGI: send its length")
    try:
        raw: bytes = request.body
    except RawPostDataException:
        return None
    except RequestDataTooBig:
        raise BodyTooLarge(limit_bytes) from None
    except UnreadablePostError:
        raise BodyRefused("it broke off") from None
    if length is not None and len(raw) != length:
        raise BodyRefused("it broke off before the length that it was to have")
    return raw


def _length(request: Any) -> int | None:
    try:
        return int(request.META.get("CONTENT_LENGTH"))
    except (TypeError, ValueError):
        return None


def _query(request: Any) -> str:
    """Return the query as text with one character for each byte."""
    scope = getattr(request, "scope", None)
    raw = request.META.get("QUERY_STRING", "") if scope is None else scope.get("query_string", b"")
    return raw.decode("latin-1") if isinstance(raw, bytes) else str(raw)


def _path(request: Any) -> dict[str, object]:
    match = request.resolver_match
    if match is None:
        # Nobody has resolved it yet, so the whole of it counts.
        return {"path": request.path_info}
    return {str(place): value for place, value in enumerate(match.args)} | dict(match.kwargs)
