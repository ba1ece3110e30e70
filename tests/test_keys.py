import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nebis.keys as module
from nebis.core.keygrammar import parse_key
from nebis.errors import MisuseError
from nebis.keys import WeaknessCode, derived_key, is_ordinary, uuid4_key, uuid7_key, weaknesses

GOOD_KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def codes(key: str) -> set[str]:
    return {weakness.code.value for weakness in weaknesses(key)}


def test_random_keys_are_uuids_that_the_grammar_accepts() -> None:
    keys = {uuid4_key() for _ in range(1000)}

    assert len(keys) == 1000
    assert all(UUID(parse_key(key)).version == 4 for key in keys)


@given(
    st.text(max_size=40)
    | st.uuids().map(str)
    | st.uuids().map(lambda key: str(key).upper())
    | st.text("01-aAfFgG_ \u0661\uff10", min_size=36, max_size=36)
    | st.tuples(st.uuids().map(str), st.integers(0, 35), st.characters()).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
    )
)
def test_ordinary_is_a_uuid_with_eight_different_characters(key: str) -> None:
    spelled = re.fullmatch(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", key)

    assert is_ordinary(key) == (spelled is not None and len(set(key)) >= 8)


def test_timed_keys_are_version_7_and_carry_the_time() -> None:
    before = time.time_ns() // 1_000_000
    key = UUID(parse_key(uuid7_key()))
    after = time.time_ns() // 1_000_000

    assert key.version == 7
    assert key.variant == UUID(GOOD_KEY).variant
    # Earlier keys of this process may have borrowed from the next milliseconds.
    assert before <= key.int >> 80 <= after + 1000


def test_timed_keys_grow_within_a_process_even_when_the_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMELINE", module._Timeline())
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)

    keys = [uuid7_key() for _ in range(10_000)]

    assert keys == sorted(set(keys))
    assert UUID(keys[0]).int >> 80 == 1_700_000_000_000
    assert all(UUID(key).version == 7 for key in keys)


def test_timed_keys_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMELINE", module._Timeline())
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    first = uuid7_key()
    monkeypatch.setattr(time, "time_ns", lambda: 1_600_000_000_000_000_000)

    assert uuid7_key() > first


def test_timed_keys_of_many_threads_are_all_different() -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = [key for made in pool.map(lambda _: [uuid7_key() for _ in range(500)], range(8)) for key in made]

    assert len(set(keys)) == 4000


def test_two_timelines_at_one_moment_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked process starts with the same counter; only the random part tells its keys apart."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)

    assert module._Timeline().next() != module._Timeline().next()


def test_a_derived_key_is_the_same_on_every_host() -> None:
    """Frozen: another derivation would let a retry after an upgrade run again."""
    assert (
        derived_key("inv_42", Decimal("10.00"), namespace="invoice-payment") == "7de32f6f-eb3d-82ba-95de-b2574bc1e913"
    )


def test_a_derived_key_is_a_version_8_uuid_that_the_grammar_accepts() -> None:
    key = UUID(parse_key(derived_key("x", namespace="n")))

    assert key.version == 8
    assert key.variant == UUID(GOOD_KEY).variant


def test_same_business_fields_give_the_same_key_by_value() -> None:
    assert derived_key("inv_42", Decimal("10.00"), namespace="n") == derived_key("inv_42", 10, namespace="n")


def test_any_other_field_namespace_or_intent_gives_another_key_f101() -> None:
    keys = [
        derived_key("a", "bc", namespace="n"),
        derived_key("ab", "c", namespace="n"),
        derived_key("abc", namespace="n"),
        derived_key("a", "bc", "d", namespace="n"),
        derived_key("bc", "a", namespace="n"),
        derived_key("a", "bc", namespace="m"),
        derived_key("a", "bc", namespace="n", intent=2),
        derived_key(1, namespace="n"),
        derived_key("1", namespace="n"),
        derived_key(date(2024, 6, 1), namespace="n"),
    ]

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("parts", "namespace"), [((), "n"), (("a", None), "n"), (("a", ""), "n"), (("a",), "")], ids=range(4)
)
def test_a_derived_key_with_something_missing_is_refused(parts: tuple[object, ...], namespace: str) -> None:
    with pytest.raises(MisuseError, match="different requests would share a key"):
        derived_key(*parts, namespace=namespace)


def test_an_intent_below_one_is_refused() -> None:
    with pytest.raises(MisuseError, match="intent"):
        derived_key("a", namespace="n", intent=0)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (GOOD_KEY, set()),
        (GOOD_KEY.upper(), set()),
        ("01HV6Z3J9W8Q2X4Y6Z8A0B2C4D", set()),
        ("pi_3OqJx2LkdIwHu7ix0m1n2o3p", set()),
        ("{8e03978e-40d5-43e8-bc93-6894a57f9324}", set()),
        ("73902845716093482", set()),
        ("abc", {"short"}),
        ("kT4vQ9xL2mZ7pR", {"short"}),
        ("1", {"short", "counter"}),
        ("42", {"short", "counter"}),
        ("order-42", {"short", "counter"}),
        ("create-payment-000123", {"counter"}),
        ("0000000000000001234", {"counter"}),
        ("12345678901234567", {"counter"}),
        ("98765432109876543", {"counter"}),
        ("1717243200", {"short", "timestamp"}),
        ("1717243200123", {"short", "timestamp"}),
        ("1717243200123456", {"timestamp"}),
        ("1717243200123456789", {"timestamp"}),
        ("create-payment-1717243200", {"timestamp"}),
        ("2024-06-01T12:00:00Z", {"timestamp"}),
        ("20240601120000", {"short", "timestamp"}),
        ("payment-20240601T1200-eu", {"timestamp"}),
        ("alice@example.com", {"email"}),
        ("order-for-alice@example.com", {"email"}),
        ("@example.com/a-package", set()),
        ("alice@localhost-machine", set()),
        ("4242424242424242", {"card-number", "repeated"}),
        ("4242-4242-4242-4242", {"card-number", "repeated"}),
        ("pay-5555555555554444-x", {"card-number"}),
        ("378282246310005", {"short", "card-number"}),
        ("4012888888881882", set()),
        ("9012888888881880", set()),
        ("aaaaaaaaaaaaaaaa", {"repeated"}),
        ("abababababababab", {"repeated"}),
        ("00000000-0000-0000-0000-000000000000", {"repeated"}),
    ],
)
def test_weaknesses_are_named_k5_sec06(key: str, expected: set[str]) -> None:
    assert codes(key) == expected


def test_every_weakness_has_one_sentence_of_advice_that_never_repeats_the_key() -> None:
    found = [w for key in ("order-42", "1717243200", "alice@example.com", "4242424242424242") for w in weaknesses(key)]

    assert {weakness.code for weakness in found} == set(WeaknessCode)
    for weakness in found:
        assert weakness.advice.endswith(".")
        assert weakness.advice.count(".") == 1
        assert "4242" not in weakness.advice


@given(st.uuids(version=4))
def test_random_uuids_are_never_called_weak(key: UUID) -> None:
    if len(set(str(key))) > 7:
        assert weaknesses(str(key)) == ()


@pytest.mark.parametrize("unit", ["1", "a", "a1", "4-", "@.", "2024", "-"])
def test_a_megabyte_is_judged_in_linear_time_sec37(unit: str) -> None:
    started = time.perf_counter()
    weaknesses(unit * 1_000_000)

    # A quadratic scan takes hours; the bound leaves room for a loaded machine.
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize("key", [GOOD_KEY, GOOD_KEY.upper(), "0" * 36, "11111111-1111-1111-1111-111111111111", "a,b"])
def test_an_ordinary_key_is_well_spelled_and_not_weak(key: str) -> None:
    assert is_ordinary(key) is (len(set(key)) > 7)
    assert not is_ordinary(key) or (parse_key(key) == key and weaknesses(key) == ())
