"""The fields of an operation file: what each may be, and every fault at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final

from nebis.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a field may be."""

    kind: str
    default: Any = None
    is_required: bool = False


class Faults:
    """What is wrong with a file."""

    def __init__(self, name: str) -> None:
        self.found: list[str] = []
        self._name = name

    def add(self, place: str, fault: str) -> None:
        """Remember one more."""
        self.found.append(f"{self._name}: {place} {fault}")

    def throw(self) -> None:
        """Raise `ConfigError` if there is any."""
        if self.found:
            raise ConfigError(self.found)


def read_section(name: str, fields: Mapping[str, Field], given: object, faults: Faults) -> dict[str, Any]:
    """Return every field of a section, given or not."""
    if not isinstance(given, Mapping):
        faults.add(name, "must be a table")
        given = {}
    for unknown in given.keys() - fields.keys():
        faults.add(f"{name}.{unknown}", f"is no field; there are {', '.join(fields)}")
    read: dict[str, Any] = {}
    for field_name, field in fields.items():
        read[field_name] = field.default
        if field_name not in given:
            if field.is_required:
                faults.add(f"{name}.{field_name}", "is missing")
            continue
        allowed, parse = _KINDS[field.kind]
        try:
            read[field_name] = parse(given[field_name])
        except ValueError as error:
            faults.add(f"{name}.{field_name}", f"must be {allowed}{f': {error}' if str(error) else ''}")
    return read


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - of the file, not of a variable.
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 3600:
        raise ValueError
    return float(value)


def _statuses(value: object) -> tuple[int, ...]:
    found = value if isinstance(value, list) else [value]
    if not found or not all(type(status) is int and 200 <= status <= 599 for status in found):
        raise ValueError
    return tuple(found)


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError  # noqa: TRY004 - of the file, not of a variable.
    return {str(name): _text(member) for name, member in value.items()}


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(_text(word) for word in value)


def _template(value: object) -> str | Mapping[str, Any]:
    if not isinstance(value, str | Mapping):
        raise ValueError  # noqa: TRY004 - of the file, not of a variable.
    if _has_a_date(value):
        raise ValueError("JSON has no dates; put it into quotes")
    return value


def _has_a_date(value: object) -> bool:
    match value:
        case Mapping():
            return any(_has_a_date(member) for member in value.values())
        case list():
            return any(_has_a_date(member) for member in value)
        case _:
            return isinstance(value, date | datetime | time)


_KINDS: Final[dict[str, tuple[str, Callable[[object], Any]]]] = {
    "text": ("a text", _text),
    "flag": ("true or false", _flag),
    "whole": ("a whole number above zero", _whole),
    "seconds": ("a number of seconds", _seconds),
    "statuses": ("an HTTP status, or a list of them", _statuses),
    "headers": ("a table of names and texts", _headers),
    "words": ("a list of texts", _words),
    "template": ("a table, or a text", _template),
}
