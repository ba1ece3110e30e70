"""Bytes that others wrote never do more than be refused (SEC33): what is kept, what is near it, and anything else.

An input that fails belongs into its target's corpus, which is played with every run, for ever.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.keeping import FOLDER, kept
from tests.fuzz.targets import TARGETS

LONGEST = 2000
KEPT = {name: kept(name) for name in TARGETS}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A kept input of which a piece was replaced by a piece of another, or by anything."""
    data, other = draw(st.sampled_from(KEPT[name])), draw(st.sampled_from(KEPT[name]))
    start, end = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
    first, last = sorted(draw(st.tuples(st.integers(0, len(other)), st.integers(0, len(other)))))
    piece = draw(st.sampled_from([b"", other[first:last]]) | st.binary(max_size=8))
    return (data[:start] + piece + data[end:])[:LONGEST]


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == TARGETS.keys()
    assert all(len(inputs) > 20 for inputs in KEPT.values())
    assert all(len(set(inputs)) == len(inputs) for inputs in KEPT.values())


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_is_read_or_refused_sec33(name: str) -> None:
    for data in KEPT[name]:
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_near_a_kept_input_is_read_or_refused_sec33(name: str) -> None:
    @settings(max_examples=150)
    @given(data=damaged(name))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused_sec33(name: str) -> None:
    @settings(max_examples=100)
    @given(data=st.binary(max_size=LONGEST) | st.text(max_size=300).map(lambda text: text.encode("utf-8")))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()
