"""A result that a person gives: JSON, checked as far as it can be, as the bytes that an operation would store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from nebis.cli.phrases import visible
from nebis.cli.worker import load
from nebis.core.envelope import seal
from nebis.core.record import Effect, Outcome, OutcomeKind, Record
from nebis.core.strictjson import parse
from nebis.declaration import Declaration
from nebis.errors import NebisError, RecordCorrupt
from nebis.http.exchange import Exchange, Storage, freeze
from nebis.planning import found_codec

LARGEST_RESULT_BYTES = 4 * 1024 * 1024
"""What operations may store by default."""


def outcome_of(given: bytes, record: Record, status: int, app: str | None) -> Outcome:
    """Return the answer of a whole operation, or of an endpoint; raise a usage error for what could not be read back.

    Only operations have their command stored: without one it is the answer of an endpoint.
    """
    text = _json(given)
    if record.command is None:
        exchange = Exchange(status=status, headers=(("content-type", "application/json"),), body=text)
        body = freeze(exchange, Storage(limit_bytes=LARGEST_RESULT_BYTES))
    else:
        declaration = _declaration(record, app)
        if declaration is not None:
            _require_fit(declaration.result_codec.decode, text)
        body = text
    return Outcome(kind=OutcomeKind.SUCCEEDED, body=seal(body))


def result_of(given: bytes, record: Record, opened: Effect, app: str | None) -> bytes:
    """Return the result of the open effect; raise a usage error for what could not be read back."""
    text = _json(given)
    declaration = _declaration(record, app)
    query = None if declaration is None else declaration.queries.get(opened.purpose)
    if query is not None:
        _require_fit(found_codec(query).decode, text)
    return seal(text)


def _json(given: bytes) -> bytes:
    text = given.strip()
    try:
        parse(text, limit_bytes=LARGEST_RESULT_BYTES)
    except NebisError as error:
        raise typer.BadParameter(f"the file cannot be stored: {error}") from None
    return text


def _declaration(record: Record, app: str | None) -> Declaration[Any, Any] | None:
    if app is None:
        return None
    operation = load(app).operations.get(record.operation)
    if operation is None:
        raise typer.BadParameter(f"{app} declares no operation {visible(record.operation)!r}")
    return operation.declaration


def _require_fit(decode: Callable[[bytes], object], text: bytes) -> None:
    """Refuse now what every retry would stumble over for ever."""
    try:
        decode(text)
    except RecordCorrupt as misfit:
        raise typer.BadParameter(f"the file is not of the declared type: {misfit.detail}") from None
