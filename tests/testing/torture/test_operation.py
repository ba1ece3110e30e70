"""The operation file: every fault at once, fresh values, and secrets that stay outside of it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nebis.errors import ConfigError
from nebis.testing.torture.operation import parse_operation, read_operation
from tests.testing.torture.shop import SHOP_TOML


def shop(**changes: dict[str, Any]) -> dict[str, Any]:
    data = tomllib.loads(SHOP_TOML)
    for section, fields in changes.items():
        data[section] = {**data.get(section, {}), **fields}
    return data


def faults(data: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_operation(data, {}, name="op.toml")
    return sorted(caught.value.faults)


def test_every_fault_of_a_file_is_told_at_once() -> None:
    found = faults(
        {
            "request": {"path": 7, "success": 99},
            "other": {"bogus": 1},
            "effects": [],
            "nonsense": {},
            "limits": {"twins": 0, "request_seconds": "soon"},
        }
    )

    assert found == [
        "op.toml: effects must be a table",
        "op.toml: limits.request_seconds must be a number of seconds",
        "op.toml: limits.twins must be a whole number above zero",
        "op.toml: nonsense is no section; there are request, variants, keys, tenants, effects, lookup, other, limits",
        "op.toml: other.bogus is no field; there are path",
        "op.toml: request.body is missing",
        "op.toml: request.path must be a text",
        "op.toml: request.success must be an HTTP status, or a list of them",
        "op.toml: variants.changed is missing",
    ]


@pytest.mark.parametrize(
    ("section", "fields", "fault"),
    [
        ("request", {"path": "payments"}, "request.path must begin with a slash"),
        ("request", {"method": "GET"}, "request.method is safe by itself"),
        ("request", {"body": {"amount": 5}}, "request.body has no {unique} or {number}"),
        ("request", {"body": {"order": "{unique}", "on": "D"}}, "request.body must be a table, or a text: JSON has no"),
        ("variants", {"changed": {"amount": 5}}, "variants.changed must differ from request.body"),
        ("variants", {"changed": "text"}, "variants.changed must be of the same kind as request.body"),
        ("variants", {"rejected_status": []}, "variants.rejected_status must be an HTTP status"),
        ("effects", {"command": ["count"]}, "effects needs either url or command"),
        ("keys", {"header": "no header"}, "keys.header is no name for a header"),
        ("lookup", {"path": "/payments"}, "lookup.path has no {id}"),
        ("limits", {"storm": 9999}, "limits.storm must be between 2 and 5000"),
        ("tenants", {"first": {"Authorization": "Bearer {env:NO_TOKEN}"}}, "names the variable NO_TOKEN"),
    ],
)
def test_a_fault_says_where_it_is_and_what_to_do(section: str, fields: dict[str, Any], fault: str) -> None:
    if fields.get("body", {}).get("on"):
        fields = {"body": {**fields["body"], "on": tomllib.loads("d = 2024-01-01")["d"]}}

    [found] = faults(shop(**{section: fields}))

    assert fault in found


def test_fresh_values_get_into_every_place() -> None:
    body = {"order": "o-{unique}", "number": "{number}", "lines": [{"note": "n-{number}"}]}
    operation = parse_operation(shop(request={"body": body}, variants={"changed": {"lines": []}}), {})

    whole = json.loads(operation.rendered("", {"unique": "u1", "number": "17"}))
    changed = json.loads(operation.rendered("changed", {"unique": "u1", "number": "17"}))

    assert whole == {"order": "o-u1", "number": 17, "lines": [{"note": "n-17"}]}
    assert changed == {**whole, "lines": []}


def test_a_token_comes_from_the_environment_and_is_not_shown() -> None:
    data = shop(tenants={"first": {"Authorization": "Bearer {env:TOKEN}"}})

    operation = parse_operation(data, {"TOKEN": "very-secret"})

    assert operation.first == (("Authorization", "Bearer very-secret"),)
    assert operation.secrets == {"very-secret": "TOKEN"}
    assert "very-secret" not in repr(operation)


@pytest.mark.parametrize(
    ("content", "fault"), [(None, "cannot be read"), (b"\xff", "it is not UTF-8"), (b"[request", "is not TOML")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, fault: str) -> None:
    path = tmp_path / "op.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        read_operation(path)

    assert str(path) in caught.value.faults[0]
    assert fault in caught.value.faults[0]
