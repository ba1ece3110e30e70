"""Failures as a line for a shell: what was sent, with fresh values each time it is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Final

from nebis.testing.torture.wire import Address, Request

LONGEST_BODY_BYTES: Final = 2000
"""A longer body is replaced by a word about it: nobody pastes it into a shell."""


class Manner(Enum):
    """How a request was sent."""

    PLAIN = "plain"
    TOGETHER = "together"
    """At the same moment as the others before and after it."""
    CUT = "cut"
    """By a client that hung up before it had the answer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was sent."""

    request: Request
    manner: Manner


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a line must not repeat: values that have to be fresh, and secrets."""

    fresh: Mapping[str, str]
    """The command that makes another such value, by value."""
    secrets: Mapping[str, str]
    """The variable of the environment that holds it, by value."""


def line(address: Address, sent: Sequence[Sent], names: Names) -> str:
    """Return one line that sends the same again."""
    used = {value: make for value, make in names.fresh.items() if any(_holds(one.request, value) for one in sent)}
    variables = {value: f"V{number}" for number, value in enumerate(used, start=1)}
    made = [f"{variable}={used[value]}" for value, variable in variables.items()]
    hidden = {**names.secrets, **variables}
    parts = [
        _part(manner, [_curl(address, one.request, manner, hidden) for one in group])
        for manner, group in groupby(sent, key=lambda one: one.manner)
    ]
    return "; ".join([*made, *parts])


def _part(manner: Manner, commands: Iterable[str]) -> str:
    counted = [(command, len(list(group))) for command, group in groupby(commands)]
    if manner is Manner.TOGETHER:
        started = [f"for i in $(seq {times}); do {command} & done" for command, times in counted]
        return "; ".join([*started, "wait"])
    return "; ".join(
        command if times == 1 else f"for i in $(seq {times}); do {command}; done" for command, times in counted
    )


def _curl(address: Address, request: Request, manner: Manner, hidden: Mapping[str, str]) -> str:
    words = ["curl", "-si"]
    if manner is Manner.CUT:
        words += ["--max-time", "0.05"]
    words += ["-X", request.method, address.url + request.path]
    for name, value in request.headers:
        # A header without a value is written with a semicolon; with a colon curl would leave it out.
        words += ["-H", f"{name}: {value}" if value else f"{name};"]
    if request.is_chunked:
        words += ["-H", "Transfer-Encoding: chunked"]
    if len(request.body) > LONGEST_BODY_BYTES:
        words += ["--data-binary", f"<{len(request.body)} bytes>"]
    elif request.body:
        words += ["--data-binary", request.body.decode("utf-8", "backslashreplace")]
    return " ".join(_quoted(word, hidden) for word in words)


def _quoted(word: str, hidden: Mapping[str, str]) -> str:
    """Quote a word for a shell, with variables where values must not stand."""
    shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in word)
    quoted = f"'{shown.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'"
    found = [value for value in hidden if value in shown]
    if not found and shown == word and shlex.quote(word) == word:
        return word
    for value in found:
        quoted = quoted.replace(value, f"'\"${hidden[value]}\"'")
    return quoted


def _holds(request: Request, value: str) -> bool:
    return (
        value.encode() in request.body or value in request.path or any(value in member for _, member in request.headers)
    )
