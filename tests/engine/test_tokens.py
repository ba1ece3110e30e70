"""Tokens: keys that the service issued itself (P14, K3)."""

import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from nebis import (
    BodyRefused,
    ConfigError,
    Local,
    Nebis,
    Retryable,
    TokenExpired,
    TokenInvalid,
    minutes,
    seconds,
)
from nebis.http import BusinessKey, OptionalKey
from nebis.integrations.bound import bound
from nebis.integrations.wsgi import idempotency_tokens, rule
from nebis.ports.store import Scan

OLD, NEW = "o" * 64, "n" * 64


def shop(url: str, secret: str | None = None, *, fails: bool = False) -> tuple[Nebis, Any]:
    nebis = Nebis(url, secret=secret)

    @nebis.operation("pay", effects=Local, issued_keys=True)
    def pay(command: str) -> str:
        if fails:
            raise Retryable("busy")
        return command

    return nebis, pay


def issued(nebis: Nebis, *, lifetime: float = 60, tenant: str = "acct_1") -> str:
    return nebis.issue(nebis.opened()[1], operation="pay", tenant=tenant, lifetime=seconds(lifetime))[0]


def records(nebis: Nebis) -> list[Any]:
    backend = nebis.opened()[0].backend
    return backend.sessions.run(backend.store.scan(Scan()))


def test_token_that_expired_unused_begins_nothing() -> None:
    nebis, pay = shop("memory://")
    token = issued(nebis, lifetime=-1)

    with pytest.raises(TokenExpired):
        pay(key=token, tenant="acct_1", command="x")

    assert records(nebis) == []


def test_token_that_expired_since_still_gets_the_answer_that_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    nebis, pay = shop("memory://")
    token = issued(nebis)
    pay(key=token, tenant="acct_1", command="x")
    later = time.time() + 3600
    monkeypatch.setattr("nebis.subject.time.time", lambda: later)

    assert pay.execute(key=token, tenant="acct_1", command="x").is_replay
    with pytest.raises(TokenInvalid):
        pay(key=token, tenant="acct_2", command="x")


@pytest.mark.parametrize("key", ["8e03978e-40d5-43e8-bc93-6894a57f9324", "nk1.x.y"])
def test_key_that_was_not_issued_is_refused(key: str) -> None:
    nebis, pay = shop("memory://")

    with pytest.raises(TokenInvalid):
        pay(key=key, tenant="acct_1", command="x")

    assert records(nebis) == []


def test_token_outlives_a_rotation_of_the_secret(tmp_path: Path) -> None:
    """F116."""
    url = f"sqlite:///{tmp_path / 'nebis.db'}"
    with shop(url, OLD)[0] as nebis:
        token = issued(nebis)
    nebis, pay = shop(url, f"{NEW},{OLD}")
    with nebis:
        assert pay(key=token, tenant="acct_1", command="x") == "x"
        assert pay(key=issued(nebis), tenant="acct_1", command="y") == "y"


def test_worker_goes_on_with_what_an_expired_token_began(monkeypatch: pytest.MonkeyPatch) -> None:
    nebis, pay = shop("memory://", fails=True)
    with pytest.raises(Retryable):
        pay(key=issued(nebis), tenant="acct_1", command="x")
    [record] = records(nebis)
    later = time.time() + 3600
    monkeypatch.setattr("nebis.subject.time.time", lambda: later)

    request, command = pay.declaration.resume(nebis.opened()[1], record)

    assert (request.may_begin, command) == (True, "x")


def test_token_is_issued_for_an_operation_that_takes_one() -> None:
    nebis, _ = shop("memory://")
    nebis.operation("plain", effects=Local)(_plain)

    for name in ("plain", "unknown"):
        with pytest.raises(BodyRefused):
            nebis.issue(nebis.opened()[1], operation=name, tenant="acct_1", lifetime=minutes(1))


def _plain(command: str) -> str:
    return command


@pytest.mark.parametrize("key", [OptionalKey(), BusinessKey(str)], ids=["optional", "business"])
def test_route_that_makes_keys_itself_cannot_demand_issued_ones(key: Any) -> None:
    nebis, pay = shop("memory://")
    options: Any = {"tenant": lambda _: "acct_1", "key": key}

    with pytest.raises(ConfigError, match="issued_keys"):
        rule(nebis, "POST /payments", "payments", effects=Local, issued_keys=True, **options)
    with pytest.raises(ConfigError, match="issued_keys"):
        bound(pay.declaration, **options)


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("GET", b"", "405"),
        ("POST", b'{"operation": "pay"}', "201"),
        ("POST", b'{"operation": "pay", "operation": "pay"}', "400"),
        ("POST", b'{"operation": "' + b"x" * 5_000 + b'"}', "413"),
        ("POST", b"operation=pay", "400"),
    ],
)
def test_endpoint_for_tokens_takes_small_json_alone(method: str, body: bytes, status: str) -> None:
    nebis, _ = shop("memory://")
    app = idempotency_tokens(nebis, tenant=lambda _environ: "acct_1", lifetime=minutes(5))

    told, answer = _asked(app, method, body)

    assert told.startswith(status)
    if status == "201":
        assert set(json.loads(answer)) == {"token", "expires_at"}


def test_token_for_nobody_is_not_issued() -> None:
    """SEC02."""
    nebis, _ = shop("memory://")
    app = idempotency_tokens(nebis, tenant=lambda _environ: None)

    assert _asked(app, "POST", b'{"operation": "pay"}')[0].startswith("401")


def _asked(app: Any, method: str, body: bytes) -> tuple[str, bytes]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": "application/json" if body.startswith(b"{") else "text/plain",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    setup_testing_defaults(environ)
    told: list[str] = []
    chunks: Iterable[bytes] = app(environ, lambda status, _headers, _error=None: told.append(status))
    return told[0], b"".join(chunks)
