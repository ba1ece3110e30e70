"""A compiled packer makes the arrays that the Python code makes, or leaves them to it."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, SafeUUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.native import compiled
from nebis.stores.sql.postgres import arrays
from nebis.stores.sql.postgres.arrays import KINDS, pack, plain_array
from tests.native.test_twins import grown

pytestmark = pytest.mark.skipif(compiled is None, reason="there is no C compiler here, or NEBIS_PURE is set")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bytea": st.binary(max_size=40),
    "text": TEXTS | st.text(st.characters(codec="ascii"), max_size=300),
    "uuid": st.uuids(),
    "bigint": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1]),
    "integer": st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1]),
    "smallint": st.integers(-(2**15), 2**15 - 1) | st.sampled_from([-(2**15), 2**15 - 1]),
}
LETTERS = {"bytea": "b", "text": "t", "uuid": "u", "bigint": "q", "integer": "i", "smallint": "h"}
USUAL: dict[str, list[Any]] = {
    "bytea": [b"", b"\0" * 32],
    "text": ["", "acct_1"],
    "uuid": [UUID(int=0), UUID(int=2**128 - 1)],
    "bigint": [0, -1],
    "integer": [0, -1],
    "smallint": [0, -1],
}


def plain(kind: str, values: Sequence[Any]) -> bytes | None:
    return plain_array(LETTERS[kind], KINDS[kind].oid, KINDS[kind].of, "int", values)


def nothing_is_plain(*_: object) -> None:
    """As where nothing is compiled."""


def in_python(kind: str, values: Sequence[Any]) -> bytes:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arrays, "plain_array", nothing_is_plain)
        return pack(kind, values)


@pytest.mark.parametrize("kind", ELEMENTS)
@given(data=st.data())
def test_a_column_is_packed_as_the_python_code_packs_it(kind: str, data: st.DataObject) -> None:
    elements = ELEMENTS[kind]
    values = data.draw(st.lists(elements, max_size=12) | st.lists(elements | st.none(), max_size=12))

    assert pack(kind, values) == in_python(kind, values)
    assert plain(kind, values) in (None, in_python(kind, values))


@pytest.mark.parametrize("kind", ELEMENTS)
def test_what_is_usual_is_packed_by_the_compiled_one(kind: str) -> None:
    values = USUAL[kind] * 128

    assert plain(kind, values) == in_python(kind, values)


class OwnBytes(bytes):
    pass


class OwnId(UUID):
    pass


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bytea", []),
        ("bytea", (b"",)),
        ("bytea", [b"", None]),
        ("bytea", [OwnBytes()]),
        ("bytea", [bytearray()]),
        ("text", ["ü"]),
        ("text", ["\ud800"]),
        ("text", [b""]),
        ("uuid", [OwnId(int=1)]),
        ("uuid", [1]),
        ("bigint", [2**63]),
        ("bigint", [-(2**63) - 1]),
        ("bigint", [2**200]),
        ("bigint", [True]),
        ("integer", [2**31]),
        ("integer", [-(2**31) - 1]),
        ("smallint", [2**15]),
        ("smallint", [-(2**15) - 1]),
        ("smallint", ["1"]),
    ],
)
def test_the_unusual_is_left_to_the_python_code(kind: str, values: Sequence[Any]) -> None:
    assert plain(kind, values) is None


def test_an_id_without_bits_is_left_to_the_python_code() -> None:
    broken = UUID(int=1, is_safe=SafeUUID.unknown)
    object.__delattr__(broken, "int")

    assert plain("uuid", [UUID(int=1), broken]) is None


@pytest.mark.parametrize("given_to_it", [(), ("b",), ("b", 17, bytes, "int"), ("bb", 17, bytes, "int", [b""])])
def test_what_it_does_not_understand_is_left_to_the_python_code(given_to_it: tuple[Any, ...]) -> None:
    assert plain_array(*given_to_it) is None
    assert plain_array("b", -1, bytes, "int", [b""]) is None
    assert plain_array("b", 2**70, bytes, "int", [b""]) is None
    assert plain_array("x", 17, bytes, "int", [b""]) is None


def test_nothing_is_left_behind() -> None:
    def uses() -> Iterator[None]:
        while True:
            for kind, values in USUAL.items():
                plain(kind, [*values, *values])
                plain(kind, [*values, None])
            plain("bigint", [1, 2**200])
            yield

    used = uses()
    grown(used)

    assert min(grown(used) for _ in range(3)) < 200
