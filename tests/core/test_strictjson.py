import decimal
import json
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.strictjson import DEEPEST_NESTING, LARGEST_SAFE_INTEGER, Json, parse
from nebis.errors import BodyRefused, BodyTooLarge

TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_SAFE_INTEGER, LARGEST_SAFE_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)

REFUSED = {
    "duplicate name": (b'{"amount":1,"amount":100}', "same name twice"),
    "duplicate name, same value": (b'{"a":1,"a":1}', "same name twice"),
    "duplicate name by escape": (b'{"a":1,"\\u0061":2}', "same name twice"),
    "nested duplicate name": (b'{"a":[{"b":1,"b":2}]}', "same name twice"),
    "NaN": (b"NaN", "NaN and Infinity"),
    "Infinity": (b'{"a":Infinity}', "NaN and Infinity"),
    "-Infinity": (b"[-Infinity]", "NaN and Infinity"),
    "1e400": (b"1e400", "too large for a double"),
    "-1e400": (b"-1e400", "too large for a double"),
    "just above the largest double": (b"1.8e308", "too large for a double"),
    "absurd exponent": (b"1e99999999999999999999", "exponent beyond any use"),
    "absurd negative exponent": (b"1e-99999999999999999999", "exponent beyond any use"),
    "2^53": (b"9007199254740992", "beyond 2\\^53-1"),
    "-2^53": (b"-9007199254740992", "beyond 2\\^53-1"),
    "17 digits": (b"12345678901234567", "beyond 2\\^53-1"),
    "5,000 digits": (b"9" * 5000, "beyond 2\\^53-1"),
    "lone high surrogate": (b'"\\ud800"', "surrogate"),
    "lone low surrogate": (b'["\\udc00"]', "surrogate"),
    "swapped surrogates": (b'"\\udc00\\ud800"', "surrogate"),
    "lone surrogate in a name": (b'{"\\uD800":1}', "surrogate"),
    "nested lone surrogate": (b'{"a":[1,{"b":"x\\ud800y"}]}', "surrogate"),
    "surrogate in UTF-8": (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
    "overlong UTF-8": (b'"\xc0\xaf"', "not UTF-8 at byte 1"),
    "latin-1": (b'"\xe9"', "not UTF-8 at byte 1"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    "UTF-16 without a mark": ('{"a":1}'.encode("utf-16-le"), "not JSON at line 1"),
    "65 arrays": (b"[" * 65 + b"]" * 65, "deeper than 64"),
    "65 objects": (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64"),
    "200,000 arrays": (b"[" * 200_000, "deeper than 64"),
    "200,000 objects": (b'{"a":' * 200_000, "deeper than 64"),
    "empty": (b"", "not JSON at line 1, column 1"),
    "white space": (b" \n", "not JSON"),
    "two documents": (b"1 2", "not JSON"),
    "a form feed at the end": (b"1\x0c", "not JSON"),
    "a space of another kind at the end": (b"1\xc2\xa0", "not JSON"),
    "trailing comma": (b"[1,]", "not JSON"),
    "comment": (b"[1] // one", "not JSON"),
    "single quotes": (b"{'a':1}", "not JSON"),
    "leading zero": (b"01", "not JSON"),
    "leading plus": (b"+1", "not JSON"),
    "bare point": (b".5", "not JSON"),
    "hexadecimal": (b"0x10", "not JSON"),
    "line feed in a string": (b'"a\nb"', "not JSON"),
    "null byte": (b"\0", "not JSON"),
    "brackets closed before they are opened": (b"]" * 100 + b"[" * 100, "not JSON"),
}


@pytest.mark.parametrize(("raw", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_an_ambiguous_body_is_refused_f097_f098_f099_f100_sec19(raw: bytes, reason: str) -> None:
    with pytest.raises(BodyRefused, match=reason):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "tree"),
    [
        (b'{"b": [1, true, null], "a": "x"}', {"b": [1, True, None], "a": "x"}),
        (b" 1 ", 1),
        (b"[1]\r\n\t ", [1]),
        (b"-0", 0),
        (b"0.10", Decimal("0.10")),
        (b"1e0", Decimal(1)),
        (b"0e400", Decimal(0)),
        (b"1e-400", Decimal("1e-400")),
        (b"1.7976931348623157e308", Decimal("1.7976931348623157e308")),
        (b"9007199254740991", LARGEST_SAFE_INTEGER),
        (b"-9007199254740991", -LARGEST_SAFE_INTEGER),
        (b'"\\ud83d\\ude42"', "🙂"),
        ('"é e\u0301"'.encode(), "é e\u0301"),
        (b'"\\u0000"', "\0"),
        (b'"[[[["', "[[[["),
        (b'"' + b"[" * 100 + b'"', "[" * 100),
        (b'["' + b'\\"[' * 100 + b'"]', ['"[' * 100]),
        (b'["' + b"\\\\" * 100 + b'", [' + b"[]," * 99 + b"[]]]", ["\\" * 100, [[]] * 100]),
    ],
)
def test_an_unambiguous_body_is_read_exactly(raw: bytes, tree: Json) -> None:
    assert parse(raw) == tree


def test_nesting_up_to_the_limit_is_read() -> None:
    raw = b"[" * DEEPEST_NESTING + b"]" * DEEPEST_NESTING

    assert json.dumps(parse(raw)).encode() == raw


def test_both_limits_can_be_set() -> None:
    assert parse(b"[[1]]", limit_bytes=5, limit_depth=2) == [[1]]
    with pytest.raises(BodyTooLarge) as caught:
        parse(b"[[1]]", limit_bytes=4)
    assert caught.value.limit_bytes == 4
    with pytest.raises(BodyRefused, match="deeper than 1 levels"):
        parse(b"[[1]]", limit_depth=1)


def test_the_size_is_looked_at_before_anything_else() -> None:
    with pytest.raises(BodyTooLarge):
        parse(b"\xff" * (1024 * 1024 + 1))


def test_numbers_are_read_alike_whatever_the_callers_decimal_context_says() -> None:
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False
        context.prec = 3

        assert parse(b"1.23456789") == Decimal("1.23456789")
        with pytest.raises(BodyRefused, match="exponent"):
            parse(b"1e99999999999999999999")


def test_a_refusal_never_repeats_the_body() -> None:
    for raw in (b'{"card":"4242","card":"4242"}', b'{"card":"4242"', b'{"card":NaN, "n":"4242"}'):
        with pytest.raises(BodyRefused) as caught:
            parse(raw)
        assert "card" not in str(caught.value)
        assert "4242" not in str(caught.value)


@pytest.mark.parametrize(
    "unit", [b"[", b'"', b'\\"', b'"\\', b"[]", b'"[', b'{"', b"\\", b"1", b"1."], ids=lambda unit: unit.decode()
)
def test_a_megabyte_of_anything_is_refused_in_linear_time_sec37(unit: bytes) -> None:
    for start in (b"", b"[" * 60, b'"', b"[" * 100):
        raw = (start + unit * 1024 * 1024)[: 1024 * 1024]

        started = time.perf_counter()
        with pytest.raises(BodyRefused):
            parse(raw)

        # A quadratic scan of a megabyte takes hours; the bound leaves room for a loaded machine.
        assert time.perf_counter() - started < 10


@given(TREES)
def test_what_the_standard_writer_writes_is_read_back(tree: Json) -> None:
    read = parse(json.dumps(tree, ensure_ascii=False).encode())

    assert json.loads(json.dumps(read, default=float)) == json.loads(json.dumps(tree))


@given(st.binary(max_size=200) | st.text(alphabet='[]{}",:\\u0d8e1.-NaI ', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        tree = parse(raw)
    except BodyRefused:
        return

    assert json.loads(json.dumps(tree, default=float)) == json.loads(raw)
