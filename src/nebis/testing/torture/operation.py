"""The operation file: how to call one operation of an API, and how to count what it did."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from nebis.errors import ConfigError
from nebis.testing.torture.schema import Faults, Field, read_section

Template: TypeAlias = "str | Mapping[str, Any]"
Headers: TypeAlias = tuple[tuple[str, str], ...]

_ENVIRONMENT: Final = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIANTS: Final = ("changed", "rejected", "slow", "fails_once", "fails_late")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """How the API speaks of keys."""

    header: str
    is_required: bool
    longest: int
    accepts_quotes: bool
    replayed_header: str
    reused_statuses: tuple[int, ...]
    in_flight_statuses: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """How to ask how often something happened."""

    url: str
    json_path: str
    headers: Headers = field(repr=False)
    command: tuple[str, ...]
    lag_seconds: float
    settle_seconds: float

    @property
    def is_per_request(self) -> bool:
        """Tell whether the count is of one request alone, so that others do not disturb it."""
        return any("{unique}" in text or "{number}" in text for text in (self.url, *self.command))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is asked, and how long an answer is waited for."""

    twins: int
    storm: int
    request_seconds: float
    settled_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an API, as its file describes it."""

    method: str
    path: str
    success: tuple[int, ...]
    headers: Headers = field(repr=False)
    content_type: str
    largest_bytes: int | None
    body: Template = field(repr=False)
    variants: Mapping[str, Template] = field(repr=False)
    rejected_statuses: tuple[int, ...]
    keys: Keys
    first: Headers = field(repr=False)
    second: Headers | None = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    """Values that came from the environment, by value; reports name the variable instead."""
    effects: Effects
    lookup_path: str
    lookup_id: str
    other_path: str
    limits: Limits

    @property
    def is_json(self) -> bool:
        """Tell whether the body was given as a table, so that the kit may spell it in other ways."""
        return not isinstance(self.body, str)

    def rendered(self, variant: str, fresh: Mapping[str, str]) -> bytes:
        """Return a body with fresh values in their places."""
        chosen = self.body if not variant else self.variants[variant]
        if isinstance(chosen, str):
            return placed_text(chosen, fresh).encode()
        assert isinstance(self.body, Mapping)
        return json.dumps(_placed({**self.body, **chosen}, fresh), separators=(",", ":")).encode()

    def members(self, fresh: Mapping[str, str]) -> dict[str, Any]:
        """Return the members of the body, for a JSON operation."""
        assert isinstance(self.body, Mapping)
        placed: dict[str, Any] = _placed(self.body, fresh)
        return placed


_SECTIONS: Final[dict[str, dict[str, Field]]] = {
    "request": {
        "method": Field(kind="text", default="POST"),
        "path": Field(kind="text", is_required=True),
        "success": Field(kind="statuses", is_required=True),
        "headers": Field(kind="headers", default={}),
        "content_type": Field(kind="text", default="application/json"),
        "largest_bytes": Field(kind="whole"),
        "body": Field(kind="template", is_required=True),
    },
    "variants": {
        **{name: Field(kind="template", is_required=name == "changed") for name in _VARIANTS},
        "rejected_status": Field(kind="statuses", default=()),
    },
    "keys": {
        "header": Field(kind="text", default="Idempotency-Key"),
        "required": Field(kind="flag", default=True),
        "longest": Field(kind="whole", default=255),
        "quoted": Field(kind="flag", default=True),
        "replayed_header": Field(kind="text", default=""),
        "reused_status": Field(kind="statuses", default=(422, 409, 400)),
        "in_flight_status": Field(kind="statuses", default=(409,)),
    },
    "tenants": {
        "first": Field(kind="headers", default={}),
        "second": Field(kind="headers"),
    },
    "effects": {
        "url": Field(kind="text", default=""),
        "json_path": Field(kind="text", default=""),
        "headers": Field(kind="headers", default={}),
        "command": Field(kind="words", default=()),
        "lag_seconds": Field(kind="seconds", default=1.0),
        "settle_seconds": Field(kind="seconds", default=0.05),
    },
    "lookup": {"path": Field(kind="text", default=""), "id": Field(kind="text", default="id")},
    "other": {"path": Field(kind="text", default="")},
    "limits": {
        "twins": Field(kind="whole", default=50),
        "storm": Field(kind="whole", default=200),
        "request_seconds": Field(kind="seconds", default=10.0),
        "settled_seconds": Field(kind="seconds", default=20.0),
    },
}


def read_operation(path: Path, environment: Mapping[str, str] | None = None) -> Operation:
    """Read an operation file; raise `ConfigError` with everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError([f"{path}: cannot be read ({reason}); name an operation file"]) from None
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: is not TOML: {error}"]) from None
    return parse_operation(data, os.environ if environment is None else environment, name=str(path))


def parse_operation(data: Mapping[str, Any], environment: Mapping[str, str], *, name: str = "operation") -> Operation:
    """Make an operation of what a file says."""
    faults = Faults(name)
    for unknown in data.keys() - _SECTIONS.keys():
        faults.add(unknown, f"is no section; there are {', '.join(_SECTIONS)}")
    read = {
        section: read_section(section, fields, data.get(section, {}), faults) for section, fields in _SECTIONS.items()
    }
    if faults.found:  # What follows compares fields with each other, which need their types for it.
        faults.throw()
    _compare(read, faults)
    secrets: dict[str, str] = {}
    headers = {
        place: _headers(value, environment, secrets, faults, place)
        for place, value in _headers_of(read)
        if value is not None
    }
    faults.throw()
    request, variants, keys, effects = read["request"], read["variants"], read["keys"], read["effects"]
    return Operation(
        method=request["method"].upper(),
        path=request["path"],
        success=request["success"],
        headers=headers["request.headers"],
        content_type=request["content_type"],
        largest_bytes=request["largest_bytes"],
        body=request["body"],
        variants={name: variants[name] for name in _VARIANTS if variants[name] is not None},
        rejected_statuses=variants["rejected_status"],
        keys=Keys(
            header=keys["header"],
            is_required=keys["required"],
            longest=keys["longest"],
            accepts_quotes=keys["quoted"],
            replayed_header=keys["replayed_header"],
            reused_statuses=keys["reused_status"],
            in_flight_statuses=keys["in_flight_status"],
        ),
        first=headers["tenants.first"],
        second=headers.get("tenants.second"),
        secrets=secrets,
        effects=Effects(
            url=effects["url"],
            json_path=effects["json_path"],
            headers=headers["effects.headers"],
            command=effects["command"],
            lag_seconds=effects["lag_seconds"],
            settle_seconds=effects["settle_seconds"],
        ),
        lookup_path=read["lookup"]["path"],
        lookup_id=read["lookup"]["id"],
        other_path=read["other"]["path"],
        limits=Limits(**read["limits"]),
    )


def _headers_of(read: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Any]]:
    places = ("request.headers", "tenants.first", "tenants.second", "effects.headers")
    return [(place, read[place.partition(".")[0]][place.partition(".")[2]]) for place in places]


def _compare(read: Mapping[str, Mapping[str, Any]], faults: Faults) -> None:
    """Find what no field shows by itself."""
    request, variants, effects = read["request"], read["variants"], read["effects"]
    if not request["path"].startswith("/"):
        faults.add("request.path", "must begin with a slash")
    if request["method"].upper() in ("GET", "HEAD", "OPTIONS"):
        faults.add("request.method", "is safe by itself; name an operation that does something")
    if bool(effects["url"]) == bool(effects["command"]):
        faults.add("effects", "needs either url or command, to count what the operation did")
    _compare_variants(request["body"], variants, faults)
    if "{unique}" not in str(request["body"]) and "{number}" not in str(request["body"]):
        faults.add("request.body", "has no {unique} or {number}; each request needs a value of its own")
    if not _TOKEN.fullmatch(read["keys"]["header"]):
        faults.add("keys.header", "is no name for a header")
    if read["lookup"]["path"] and "{id}" not in read["lookup"]["path"]:
        faults.add("lookup.path", "has no {id}; say where the id of what was made goes")
    for name in ("twins", "storm"):
        if not 2 <= read["limits"][name] <= 5000:
            faults.add(f"limits.{name}", "must be between 2 and 5000")


def _compare_variants(body: Template, variants: Mapping[str, Any], faults: Faults) -> None:
    for name in _VARIANTS:
        if variants[name] is not None and isinstance(variants[name], str) != isinstance(body, str):
            faults.add(f"variants.{name}", "must be of the same kind as request.body: both tables, or both texts")
    if variants["changed"] in (body, {}) or (
        isinstance(body, Mapping)
        and isinstance(variants["changed"], Mapping)
        and {**body, **variants["changed"]} == body
    ):
        faults.add("variants.changed", "must differ from request.body")
    if variants["rejected"] is not None and not variants["rejected_status"]:
        faults.add("variants.rejected_status", "is missing; say how a rejection is answered, such as 402")


def _headers(
    given: Mapping[str, str], environment: Mapping[str, str], secrets: dict[str, str], faults: Faults, place: str
) -> Headers:
    """Return headers whose values may name a variable of the environment, so that no file holds a token."""

    def filled(match: re.Match[str]) -> str:
        value = environment.get(match[1])
        if value is None:
            faults.add(place, f"names the variable {match[1]}, which is not set")
            return ""
        if value:
            secrets[value] = match[1]
        return value

    return tuple((name, _ENVIRONMENT.sub(filled, value)) for name, value in given.items())


def placed_text(text: str, fresh: Mapping[str, str]) -> str:
    """Put fresh values into their places in a text."""
    for name, value in fresh.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _placed(value: Any, fresh: Mapping[str, str]) -> Any:
    """Put fresh values into every text; one that is nothing but {number} becomes a number."""
    match value:
        case "{number}":
            return int(fresh["number"])
        case str():
            return placed_text(value, fresh)
        case Mapping():
            return {name: _placed(member, fresh) for name, member in value.items()}
        case list():
            return [_placed(member, fresh) for member in value]
        case _:
            return value
