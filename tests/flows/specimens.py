"""Requests and records for tests of flows."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack
from uuid import UUID

from nebis import Declared, Disposition, Rejected
from nebis.core.claiming import first_life
from nebis.core.record import EffectsMode, Fence, Nonce, OutcomeKind, Record, RecordId, State
from nebis.core.rejection import encode_rejection
from nebis.core.secret import Keyring, Secret, Secrets
from nebis.declaration import Declaration, PolicyOptions, declare
from nebis.flows.request import Request
from nebis.ports.asks import Drawn

NOW = 1_700_000_000_000_000
LEASE_US = 30_000_000
SECRETS = Secrets(identity=Secret(bytes(32)), keyring=Keyring.of(bytes(range(32))))
DRAWN = Drawn(record_id=RecordId(UUID(int=7)), nonce=Nonce(b"n" * 16))
KEY = "a-key-of-a-test-0001"


class Unwanted(Exception):
    """What the hook of these tests takes for a request that should never have been one."""


def classified(error: Exception) -> Disposition:
    """Classify as an application's own hook might."""
    if isinstance(error, Unwanted):
        return Disposition.WITHDRAW
    if isinstance(error, Rejected):
        return Disposition.REJECT
    raise LookupError("this hook knows no such error")


def declaration(effects: EffectsMode = Declared, **options: Unpack[PolicyOptions]) -> Declaration[Any, Any]:
    """Declare an operation of one string to another."""

    def handle(command: str) -> str:
        raise AssertionError(f"never called with {len(command)} characters: worlds bring their own handlers")

    return declare("pay", handle, is_async=False, effects=effects, options=options)


def request_of(declared: Declaration[Any, Any] | None = None, *, key: str = KEY, command: str = "42 EUR") -> Request:
    """Make a request of a tenant."""
    return (declared or declaration()).call(SECRETS, key=key, tenant="acct_1", command=command)


def quick(**options: Unpack[PolicyOptions]) -> Request:
    """Make a request whose caller is kept for at most a second while the store does not confirm."""
    options.setdefault("confirm", timedelta(seconds=1))
    return request_of(declaration(**options))


def owned(request: Request, **changes: Any) -> Record:
    """Return the record that the request's claim begins, with other values where wanted."""
    return replace(first_life(request.claim(DRAWN.record_id, DRAWN.nonce), NOW, Fence(1)), **changes)


def completed(record: Record, body: bytes, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> Record:
    """Return the record with an outcome."""
    return replace(
        record, state=State.COMPLETED, is_dirty=False, completed_at=NOW, outcome_kind=kind, outcome=body, command=None
    )


def rejection(reason: str) -> bytes:
    """Return a rejection as it is stored."""
    return encode_rejection(Rejected(reason))
