"""One sequence of bytes per meaning: the form of a plain tree that a fingerprint is taken of.

The form is version 1 and frozen: stored fingerprints depend on every byte of it. A change must arrive as a new form
that a `FingerprintRule` asks for by name, beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any
from uuid import UUID

from nebis.errors import BodyRefused, MisuseError

DEEPEST_TREE = 80  # A JSON body of 64 levels, wrapped in objects of the command's own; safe from RecursionError (F100).
LONGEST_INTEGER_BITS = (
    4096  # Turning a longer one into digits is slow, and refused by the interpreter from 4,300 digits.
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A named object of a plain tree: fields without those at their default, and what it accepted beyond its fields."""

    name: str
    fields: Mapping[str, object]
    extra: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part of a tree that is in canonical form already."""

    form: bytes


def canonical(tree: object) -> bytes:
    """Encode a plain tree so that equal meaning gives equal bytes, and distinct meaning distinct ones.

    Numbers count by value, whatever their type or spelling; aware times by their instant; an enum member as its value;
    strings without normalisation. Raise `BodyRefused` for content without one meaning, `MisuseError` for a type
    without a rule.
    """
    return _form(tree, 0)


def _form(node: object, depth: int) -> bytes:
    """Return one self-delimiting encoding, so that a sequence of them cannot be cut in two ways."""
    if depth > DEEPEST_TREE:
        raise BodyRefused(f"it is nested deeper than {DEEPEST_TREE} levels")
    # By exact type first: nearly every node of a command is one of these, and asking for each kind in turn is slow.
    write = _USUAL.get(type(node))
    return _unusual(node, depth) if write is None else write(node, depth)


def _unusual(node: object, depth: int) -> bytes:
    """Encode what is neither a scalar of JSON nor a plain list or dict; subclasses of those come here too."""
    if isinstance(node, Enum):
        return _form(node.value, depth + 1)
    if isinstance(node, list | tuple):
        return _items(node, depth)
    if isinstance(node, Mapping):
        return _members(node, depth)
    if isinstance(node, AbstractSet):
        return b"<%b>" % b"".join(sorted(_form(item, depth + 1) for item in node))
    if isinstance(node, Model):
        return model_head(node.name) + _members(node.fields, depth) + _members(node.extra, depth)
    return _scalar(node)


@lru_cache(maxsize=1024)
def model_head(name: str) -> bytes:
    """Give what the form of a model begins with."""
    return _sized(b"m", _utf8(name))


def _items(items: Sequence[object], depth: int) -> bytes:
    return b"[%b]" % b"".join([_form(item, depth + 1) for item in items])


def _members(members: Mapping[Any, object], depth: int) -> bytes:
    below = depth + 1
    pairs = sorted([(_form(name, below), _form(member, below)) for name, member in members.items()])
    return b"{%b}" % b"".join([part for pair in pairs for part in pair])


def spelled_integer(value: int) -> str:
    """Spell an integer as `spelled_number` would, without the way through a Decimal."""
    if value.bit_length() > LONGEST_INTEGER_BITS:
        raise BodyRefused(f"an integer has more than {LONGEST_INTEGER_BITS} bits")
    written = str(value)
    if written[-1] != "0":
        return f"{written}e0"
    significant = written.rstrip("0")
    return f"{significant}e{len(written) - len(significant)}" if value else "0"


def _integer(value: int, _depth: int) -> bytes:
    spelled = spelled_integer(value).encode()
    return b"n%d:%b" % (len(spelled), spelled)


def _number(value: float | Decimal, _depth: int) -> bytes:
    spelled = spelled_number(value).encode()
    return b"n%d:%b" % (len(spelled), spelled)


def _text(value: str, _depth: int) -> bytes:
    payload = _utf8(value)
    return b"s%d:%b" % (len(payload), payload)


def _scalar(value: object) -> bytes:
    if isinstance(value, str):
        return _text(value, 0)
    if isinstance(value, int):
        return _integer(int(value), 0)
    if isinstance(value, float | Decimal):
        return _number(value, 0)
    if isinstance(value, bytes | bytearray):
        return _sized(b"b", bytes(value))
    if isinstance(value, UUID):
        return _sized(b"u", value.bytes)
    if isinstance(value, datetime):  # Before date, which it also is.
        return _datetime(value, 0)
    if isinstance(value, date):
        return _sized(b"d", value.isoformat().encode())
    if isinstance(value, time):
        return _sized(b"c", value.isoformat().encode())
    if isinstance(value, timedelta):
        return _sized(b"p", str(value // _MICROSECOND).encode())
    raise MisuseError(
        f"A value of type {type(value).__qualname__!r} has no canonical form; "
        "convert it to a plain type, or exclude its field from the fingerprint."
    )


def _sized(tag: bytes, payload: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(payload), payload)


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise BodyRefused("a string has half of a surrogate pair") from None


def spelled_number(value: float | Decimal) -> str:
    """Spell a number by its value: `digits e exponent` without trailing zeros, and one zero."""
    if isinstance(value, float):
        # The shortest spelling that reads back as this float is what a person meant by it: 0.1 is Decimal("0.1").
        is_finite, written = isfinite(value), float.__repr__(value)
    else:
        # As text, neither `normalize()` nor any arithmetic: they round to the caller's context, which would make two
        # large amounts equal. The context also says whether the exponent has a small letter.
        is_finite, written = value.is_finite(), Decimal.__str__(value).lower()
    if not is_finite:
        raise BodyRefused("NaN and Infinity are not numbers that can be compared")
    mantissa, _, power = written.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = f"{whole}{fraction}".lstrip("-0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    exponent = int(power or 0) - len(fraction) + len(digits) - len(significant)
    return f"{'-' if whole[0] == '-' else ''}{significant}e{exponent}"


def _datetime(value: datetime, _depth: int) -> bytes:
    if value.utcoffset() is None:
        return _sized(b"l", value.isoformat().encode())
    # A difference, not `astimezone`, which overflows at both ends of the calendar.
    return _sized(b"i", str((value - _EPOCH) // _MICROSECOND).encode())


SCALAR_FORMS: dict[type, Callable[[Any, int], bytes]] = {
    str: _text,
    int: _integer,
    bool: lambda value, _: b"t" if value else b"f",
    type(None): lambda _value, _depth: b"z",
    float: _number,
    Decimal: _number,
    UUID: lambda value, _: b"u16:" + value.bytes,
    datetime: _datetime,
}
_USUAL: dict[type, Callable[[Any, int], bytes]] = {
    **SCALAR_FORMS,
    dict: _members,
    list: _items,
    tuple: _items,
    Encoded: lambda value, _: value.form,
}
