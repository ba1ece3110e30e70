"""JSON bytes of plain values: by `orjson` where it is installed, else by the standard library, to the same effect.

A faster library is believed only where it can be shown to say the same. What it refuses to write or to read goes the
way of the standard library, which has the last word. Two things would go wrong silently, and are looked out for here:

- it writes NaN as null, and enums, UUIDs and tuples as what they hold: only what a shape made plain comes here;
- it reads integers of more than 64 bits as floats: bytes with that many digits in a row are read again.

Floats may be spelled differently (`1e-05`, `0.00001`), both as short as what reads back as the same float can be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from json.scanner import make_scanner
from typing import Any, Final, NoReturn, TypeAlias


@dataclass(frozen=True, slots=True)
class JsonText:
    """One way to write and read JSON."""

    write: Callable[[Any], bytes]
    """Gives compact JSON of a value that its shape let pass; raises `ValueError` where there is none."""
    write_flat: Callable[[dict[Any, Any]], bytes]
    """Does the same for a dict of scalars of whose names nothing is known; raises `TypeError` if one is not exactly a
    text, and may raise it for what only `write` can write."""
    glance: Callable[[bytes], Any]
    """Reads JSON, integers of more than 64 bits perhaps as floats; where it raises `ValueError`, `read_by_standard`
    has the last word."""
    settle: Callable[[Any, bytes], Any]
    """Returns what was glanced, with such integers as what they are."""


@lru_cache(maxsize=1)
def json_text() -> JsonText:
    """Choose the way of this process, when it is first needed: `import nebis` loads no module of others."""
    try:
        import orjson  # noqa: PLC0415 - Optional.
    except ImportError:
        return STANDARD
    return quickly_by(orjson)


def quickly_by(orjson: Any) -> JsonText:
    """Write and read with orjson, and with the standard library whatever it cannot."""
    dumps, loads = orjson.dumps, orjson.loads
    # Nothing of these comes here; if it did, the standard library would have to refuse it.
    option = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

    def write(value: Any) -> bytes:
        try:
            return dumps(value, None, option)  # type: ignore[no-any-return]
        except TypeError:  # A longer integer, a text without UTF-8 form, a name that is not exactly a text.
            return write_by_standard(value)

    # A dict of scalars needs no option: it refuses by itself whatever name is not exactly a text.
    return JsonText(write, dumps, loads, _with_long_integers)


def _with_long_integers(found: Any, data: bytes) -> Any:
    return read_by_standard(data) if _LONG in data.translate(_AS_ZERO) else found


_TEXT: Final = frozenset({str})
_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * 19
"""As many digits as the smallest integer of more than 63 bits."""


def write_by_standard(value: Any) -> bytes:
    return "".join(_write(value, 0)).encode()


def _write_flat_by_standard(value: dict[Any, Any]) -> bytes:
    if not _TEXT.issuperset(map(type, value)):
        raise TypeError("a name is not a text")
    return write_by_standard(value)


def read_by_standard(data: bytes) -> Any:
    text = data.decode()
    # The scanner alone, without a look for white space on both sides: there is none in what we write.
    try:
        raw, end = _scan(text, 0)
    except (StopIteration, ValueError):
        end = -1
    if end != len(text):
        raw = _DECODER.decode(text)
    # We never write a surrogate as an escape; whoever did may have left half of a pair, which no text may hold.
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        json.dumps(raw, ensure_ascii=False).encode()
    return raw


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")


_Write: TypeAlias = Callable[[Any, int], Iterable[str]]


def writer(make: Callable[..., _Write] | None) -> _Write:
    """Return what writes a value as parts of text, made once: `JSONEncoder.encode` makes a new one for each value.

    It does not look out for a value that contains itself: no shape lets one through.
    """
    usual = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if make is None:  # An interpreter without the C half of `json`.
        return lambda value, _: usual.iterencode(value)
    sort_keys = skipkeys = allow_nan = False
    return make(None, usual.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, skipkeys, allow_nan)


_write = writer(json.encoder.c_make_encoder)  # type: ignore[attr-defined]  # It is there, None without the C half.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_scan = make_scanner(_DECODER)  # type: ignore[arg-type]  # Its stub names itself as what it reads its hooks from.

STANDARD: Final = JsonText(write_by_standard, _write_flat_by_standard, read_by_standard, lambda found, _: found)
