"""The compiled twins give what the Python code gives, byte for byte, or leave it to that."""

import copy
import gc
import hmac
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nebis import Declared, subject
from nebis.core.jsonform import json_form
from nebis.core.marks import Marking, Marks
from nebis.core.native import compiled
from nebis.core.secret import Begun, Keyring, Secret, Secrets
from nebis.declaration import Declaration, declare
from nebis.keys import is_ordinary
from tests.core.test_jsonform import JSON, REFUSED, TEXTS, UNUSUAL

pytestmark = pytest.mark.skipif(compiled is None, reason="there is no C compiler here, or NEBIS_PURE is set")

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
SECRETS = Secrets(identity=Secret(bytes(32)), keyring=Keyring.of(bytes(range(32))))
# As a request mostly is: what the twins are there for.
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(TEXTS, children, max_size=40),
    max_leaves=60,
)


def defined(tree: object, depth: int = 0) -> object:
    """What the Python function says."""
    return cast("partial[object]", json_form).args[0](tree, depth)


@given(JSON | PLAIN, st.integers(0, 82))
@example({str(number): number for number in range(500)}, 0)
@example({"a" * 5000: {"b" * 3000: ["c" * 9000]}}, 79)
@example([{}, [], {"": {}}, 0, -0, 10, -(2**63), 2**63 - 1, 2**63, -1000], 0)
def test_json_form_is_that_of_the_python_function(tree: object, depth: int) -> None:
    assert json_form(tree, depth) == defined(tree, depth)


@pytest.mark.parametrize("other", [*UNUSUAL, *REFUSED, -1.0, 1.5])
def test_json_form_leaves_the_unusual_to_the_python_function(other: object) -> None:
    for tree in (other, [other], {"a": {"b": other}}, {"z": 1, "a": [2, other]}):
        assert json_form(tree) == defined(tree)


def test_json_form_takes_what_the_python_function_takes() -> None:
    for wrong in ((), (1, 0, 0), (1, "0")):
        with pytest.raises(TypeError):
            json_form(*wrong)
    with pytest.raises(OverflowError):
        json_form(1, 2**80)
    assert json_form(1, -1) == defined(1, -1)


@given(st.binary(max_size=64), st.binary(max_size=200), st.binary(max_size=300))
def test_signatures_are_those_of_hmac(key: bytes, beginning: bytes, rest: bytes) -> None:
    begun: Begun[bytes] = Begun(key, beginning)

    for _ in range(2):  # What was begun stays as it was.
        assert begun.sign(rest) == hmac.digest(key, beginning + rest, "sha256")


def test_signatures_of_every_size_are_those_of_hmac() -> None:
    key, message = bytes(range(32)), bytes(range(256)) * 2

    for size in range(200):
        assert Begun(key, message[:size]).sign(message[size : 2 * size]) == hmac.digest(
            key, message[: 2 * size], "sha256"
        )


def test_what_a_secret_has_begun_is_never_copied_sec26() -> None:
    begun: Begun[bytes] = Begun(bytes(32), b"")

    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="never pickled or copied"):
            attempt(begun)
    with pytest.raises(TypeError):
        begun.sign("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no longer than a block"):
        Begun(bytes(65), b"")
    with pytest.raises(TypeError):
        Begun("text", b"")  # type: ignore[arg-type]


@pytest.fixture
def declared() -> Declaration[Any, Any]:
    def pay(command: dict[str, Any]) -> None:
        raise AssertionError(f"never called with {len(command)} members")

    return declare("pay", pay, is_async=False, effects=Declared, options={})


def general(declared: Declaration[Any, Any], key: str, tenant: str, command: object) -> Marks:
    """What `marks` makes where nothing is usual."""
    hand = declared._hand_of(SECRETS)
    hand.usual, usual = subject._nothing_is_usual, hand.usual
    try:
        return declared.marks(SECRETS, key, tenant, command)
    finally:
        hand.usual = usual


def test_marks_of_usual_requests_are_those_of_the_general_way(declared: Declaration[Any, Any]) -> None:
    @given(st.uuids(), st.sampled_from(["acct_1", "größe", "\U0001f600"]), PLAIN)
    def check(number: Any, tenant: str, command: object) -> None:
        assume(is_ordinary(str(number)))
        for key in (str(number), str(number).upper()):
            expected = general(declared, key, tenant, command)

            made = declared._hand_of(SECRETS).usual(key, tenant, command)

            assert made == expected == declared.marks(SECRETS, key, tenant, command)
            assert type(made) is Marks
            assert made.terms is expected.terms

    check()


@pytest.mark.parametrize(
    "key",
    [
        *("", "order-1138", "0" * 36, KEY[:-1], KEY + "0"),
        *(KEY.replace("-", "0"), KEY.replace("8", "g"), KEY.replace("8", "é")),
        *("11111111-2222-4333-8444-555555555555", "00000000-0000-4000-8000-000000000000"),
        type("Text", (str,), {})(KEY),
    ],
)
def test_unusual_keys_are_left_to_the_general_way(declared: Declaration[Any, Any], key: str) -> None:
    general(declared, KEY, "acct_1", {})

    made = declared._hand_of(SECRETS).usual(key, "acct_1", {})

    assert (made is None) or (is_ordinary(key) and made == general(declared, key, "acct_1", {}))
    assert made is None or type(key) is str


def test_other_unusual_requests_are_left_to_the_general_way(declared: Declaration[Any, Any]) -> None:
    general(declared, KEY, "acct_1", {})
    usual = declared._hand_of(SECRETS).usual

    assert usual(KEY, "acct_1", {}) is not None
    assert usual(KEY, "nobody yet", {}) is None
    assert usual(KEY, type("Text", (str,), {})("acct_1"), {}) is None
    for command in (1.5, {"a": b"raw"}, {"a": 2**70}, "\ud800"):
        assert usual(KEY, "acct_1", command) is None
    arguments: list[Any] = [(KEY,), (KEY, "acct_1", {}, 1)]
    for wrong in arguments:
        with pytest.raises(TypeError):
            usual(*wrong)


def test_marking_takes_nothing_but_what_it_works_with() -> None:
    begun: Begun[Any] = Begun(bytes(32), b"")
    right: list[Any] = [Marks, {}, begun, 1, b"", b"", None]

    assert Marking(*right).of(KEY, "acct_1", {}) is None
    for place, wrong in [(0, int), (0, 1), (1, []), (2, object()), (3, "1"), (4, "text"), (5, None)]:
        with pytest.raises(TypeError):
            Marking(*[*right[:place], wrong, *right[place + 1 :]])
    right[1] = {"acct_1": object()}
    assert Marking(*right).of(KEY, "acct_1", {}) is None


def _uses(declared: Declaration[Any, Any]) -> Iterator[None]:
    command: dict[str, Any] = {"amount": 4200, "rows": [{"a": None}] * 30, **{str(number): "é" for number in range(40)}}
    while True:
        declared._hand_of(SECRETS).usual(KEY, "acct_1", command)
        declared._hand_of(SECRETS).usual(KEY, "acct_1", [command, 1.5])
        json_form(command)
        json_form([command, object()])
        Begun(bytes(32), b"begun").sign(b"rest")
        Marking(Marks, {}, Begun(bytes(32), b""), 1, b"", b"", None)  # type: ignore[arg-type]
        yield


def grown(uses: Iterator[None], times: int = 2000) -> int:
    """How many more blocks of memory there are after many uses."""
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        next(uses)
    gc.collect()
    return sys.getallocatedblocks() - before


def test_nothing_is_left_behind(declared: Declaration[Any, Any]) -> None:
    general(declared, KEY, "acct_1", {})
    uses = _uses(declared)
    grown(uses)

    # Whoever runs these tests has threads of its own, which may keep something now and then.
    assert min(grown(uses) for _ in range(3)) < 200
