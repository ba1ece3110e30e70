"""JSON read strictly: what two readers could understand differently is refused, never guessed (SEC19)."""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal, InvalidOperation
from itertools import accumulate
from json.scanner import make_scanner
from math import isinf
from typing import NoReturn, TypeAlias

from nebis.errors import BodyRefused, BodyTooLarge

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

LARGEST_BODY_BYTES = 1024 * 1024  # Ten times any sane command; a larger one costs memory in every worker at once.
DEEPEST_NESTING = 64  # Deeper than any hand-made schema, far from the interpreter's recursion limit (F100).
LARGEST_SAFE_INTEGER = 2**53 - 1  # Beyond it a reader with doubles, which most are, sees another number (F098).

# The optional closing quote lets the pattern match whatever follows, so that it never backtracks (SEC37).
_STRING = re.compile(rb'"(?:[^"\\]+|\\.?)*"?', re.DOTALL)
_WHITESPACE = " \t\n\r"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_CHANGE = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
# A context of our own: the caller's may have the trap switched off, and would get NaN for an absurd exponent.
_EXACT = Context(traps=[InvalidOperation])


def parse(raw: bytes, *, limit_bytes: int = LARGEST_BODY_BYTES, limit_depth: int = DEEPEST_NESTING) -> Json:
    """Read one JSON document exactly, fractions as `Decimal`, or raise `BodyRefused` or `BodyTooLarge`."""
    if len(raw) > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    if _is_deeper(raw, limit_depth):
        raise BodyRefused(f"its JSON is nested deeper than {limit_depth} levels")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BodyRefused("it begins with a byte order mark")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyRefused(f"it is not UTF-8 at byte {error.start}") from None
    try:
        tree = _read(text)
    except json.JSONDecodeError as error:
        raise BodyRefused(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    # Raw UTF-8 cannot carry a surrogate, so that only an escape can have brought one in.
    if "\\u" in text:
        _refuse_surrogates(tree)
    return tree


def _is_deeper(raw: bytes, limit_depth: int) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= limit_depth:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_CHANGE.__getitem__, brackets)), default=0) > limit_depth


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        # A gateway may have checked the first value and the handler would use the last (F097).
        raise BodyRefused("an object has the same name twice")
    return members


def _integer(digits: str) -> int:
    # The length is looked at first: converting thousands of digits is slow, and an error of its own (F098).
    if len(digits) <= 17 and abs(number := int(digits)) <= LARGEST_SAFE_INTEGER:
        return number
    raise BodyRefused("an integer is beyond 2^53-1; send it as a string")


def _fraction(digits: str) -> Decimal:
    try:
        number = Decimal(digits, _EXACT)
    except InvalidOperation:
        raise BodyRefused("a number has an exponent beyond any use") from None
    if number and (number.adjusted() > 308 or isinf(float(number))):
        raise BodyRefused("a number is too large for a double")
    return number


def _constant(_name: str) -> NoReturn:
    raise BodyRefused("NaN and Infinity are not JSON")


def _refuse_surrogates(tree: Json) -> None:
    waiting: list[Json] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(node.keys())
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, str):
            try:
                node.encode("utf-8")
            except UnicodeEncodeError:
                raise BodyRefused("a string has half of a surrogate pair") from None


# Made once: `json.loads` would make one for every body.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
_scan = make_scanner(_DECODER)  # type: ignore[arg-type]  # Its stub names itself as what it reads its hooks from.


def _read(text: str) -> Json:
    """Read a document, of which most begin and end without white space: then nobody looks for any."""
    tree: Json
    try:
        tree, end = _scan(text, 0)
    except (StopIteration, json.JSONDecodeError):
        return _DECODER.decode(text)  # type: ignore[no-any-return]  # Or raises what is wrong.
    return _DECODER.decode(text) if text[end:].strip(_WHITESPACE) else tree
