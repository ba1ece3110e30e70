"""Reads `.sql` files: named blocks, shared fragments, `:name` parameters and the schema that tables live in.

A block begins with `-- name: x` and is one statement. A block that begins with `-- fragment: x` is text that other
blocks of the same file repeat as `{x}`, or as `{other_:x}` with that before the name of each parameter. Everything
before the first block is commentary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from nebis.errors import ConfigError
from nebis.stores.sql.asks import Statement

_HEADER = re.compile(r"^-- (?P<kind>name|fragment): (?P<name>[a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(?:(?P<prefix>[a-z_]+):)?(?P<name>[a-z][a-z0-9_]*)\}")
_TOKEN = re.compile(
    r"""
      (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<verbatim>'(?:[^']|'')*' | "[^"]*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | ::)
    | :(?P<parameter>[a-z_][a-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# Indexes cannot be named with a schema; they are written in double quotes, which keeps them as they are.
_UNNEST = re.compile(r"\bunnest\((?P<columns>[^()]*)\)(?P<position> WITH ORDINALITY)?")
_ARRAY = re.compile(r":([a-z_]+)::[a-z]+\[\]")
_RELATION = re.compile(r'"[^"]*"|\bnebis_\w+')


def checked_schema(schema: str | None) -> str | None:
    """Return the schema's name if it needs no escaping anywhere; otherwise raise `ConfigError` (SEC20)."""
    if schema is not None and not _SCHEMA_NAME.fullmatch(schema):
        raise ConfigError(
            [f"schema {schema[:80]!r} is not a plain name; use letters, digits and underscores, at most 63 of them"]
        )
    return schema


def read_statements(source: str, *, schema: str | None = None) -> dict[str, Statement]:
    """Return the named statements of a file, in its order, with every `nebis_` relation put into `schema`."""
    checked_schema(schema)
    fragments: dict[str, str] = {}
    statements: dict[str, Statement] = {}
    for kind, name, text in _blocks(source):
        if name in fragments or name in statements:
            raise ValueError(f"the SQL file defines {name!r} twice")
        whole = _FRAGMENT.sub(lambda found: _fragment(fragments, found), text)
        if kind == "fragment":
            fragments[name] = whole
        else:
            statements[name] = _statement(name, whole, schema)
    return statements


def _blocks(source: str) -> list[tuple[str, str, str]]:
    headers = list(_HEADER.finditer(source))
    ends = [header.start() for header in headers[1:]] + [len(source)]
    return [
        (header["kind"], header["name"], _without_comments(source[header.end() : end]))
        for header, end in zip(headers, ends, strict=True)
    ]


def _without_comments(text: str) -> str:
    bare = _TOKEN.sub(lambda found: "" if found["comment"] else found[0], text)
    lines = (line.rstrip() for line in bare.splitlines())
    return "\n".join(line for line in lines if line).strip().removesuffix(";")


def _fragment(fragments: Mapping[str, str], use: re.Match[str]) -> str:
    name, prefix = use["name"], use["prefix"]
    if name not in fragments:
        raise ValueError(f"the SQL file uses {{{name}}} before it defines it")
    text = fragments[name]
    return text if prefix is None else _with_parameters(text, lambda parameter: f":{prefix}{parameter}")


def _statement(name: str, text: str, schema: str | None) -> Statement:
    text = qualified(text, schema)
    sent = _in_step(text)
    numbers: dict[str, int] = {}
    for found in _TOKEN.finditer(text):
        if found["parameter"]:
            numbers.setdefault(found["parameter"], len(numbers) + 1)
    return Statement(
        name=name,
        text=text,
        parameters=tuple(numbers),
        positional=_with_parameters(sent, lambda parameter: f"${numbers[parameter]}"),
        pyformat=_with_parameters(sent.replace("%", "%%"), lambda parameter: f"%({parameter})s"),
    )


def _in_step(text: str) -> str:
    """Have several arrays unnested in step, value by value, which says the same.

    Of `FROM unnest(a, b)` PostgreSQL first makes a store for each array, of 16 KB or more however short the array is,
    and gives all that memory back at the end: a tenth of what a batch of 16 claims and 16 completions costs.
    """

    def selected(unnest: re.Match[str]) -> str:
        arrays = _ARRAY.sub(lambda array: f"unnest({array[0]})", unnest["columns"])
        return unnest[0] if unnest["position"] or arrays == unnest["columns"] else f"(SELECT {arrays})"

    return _UNNEST.sub(selected, text)


def _with_parameters(text: str, render: Callable[[str], str]) -> str:
    return _TOKEN.sub(lambda found: render(found["parameter"]) if found["parameter"] else found[0], text)


def qualified(text: str, schema: str | None) -> str:
    """Put every `nebis_` relation of a text into the schema."""
    if schema is None:
        return text
    return _RELATION.sub(lambda found: found[0] if found[0].startswith('"') else f'"{schema}".{found[0]}', text)


@cache
def sharing(statement: Statement, columns: frozenset[str]) -> Statement:
    """Return a plural statement with plain values in these columns, the same for all members."""

    def plain(array: re.Match[str]) -> str:
        return array[0].removesuffix("[]") if array[1] in columns else array[0]

    # Among arrays that are unnested in step, a plain value stands beside each of their elements.
    return _statement(statement.name, _ARRAY.sub(plain, statement.text), None)


@cache
def lone(statement: Statement, columns: frozenset[str]) -> Statement | None:
    """Return a plural statement for a single member, with plain values in these columns; None where it needs arrays.

    An array of one costs client and server more than the value itself.
    """

    def one_row(unnest: re.Match[str]) -> str:
        arrays = _ARRAY.findall(unnest["columns"])
        if not arrays or not columns.issuperset(arrays):
            return unnest[0]
        position = ", 1::bigint" if unnest["position"] else ""
        return f"(VALUES ({unnest['columns'].replace('[]', '')}{position}))"

    text = _UNNEST.sub(one_row, statement.text)
    if not columns.isdisjoint(_ARRAY.findall(text)):
        return None
    return _statement(statement.name, text, None)
