"""Rejections as they are stored."""

import json

import pytest

from nebis import RecordCorrupt, Rejected, ResultUnstorable
from nebis.core.envelope import unseal
from nebis.core.rejection import LONGEST_REJECTION, decode_rejection, encode_rejection


def stored(error: Exception) -> bytes:
    return unseal(encode_rejection(error), limit_bytes=100_000)


def test_rejection_is_told_again_as_it_was() -> None:
    told = decode_rejection(stored(Rejected("declined", detail="no funds", undone=("charge", "reserve"))))

    assert (told.reason, told.detail, told.undone) == ("declined", "no funds", ("charge", "reserve"))


def test_what_was_not_undone_is_not_mentioned() -> None:
    assert json.loads(stored(Rejected("declined"))) == {"reason": "declined", "detail": ""}


def test_result_that_could_not_be_kept_says_why() -> None:
    assert decode_rejection(stored(ResultUnstorable("it is too large"))).detail == "it is too large"


def test_of_any_other_exception_only_the_type_is_kept() -> None:
    """SEC24."""
    assert json.loads(stored(ValueError("4111 1111 1111 1111"))) == {"reason": "ValueError", "detail": ""}


def test_long_words_are_cut() -> None:
    assert len(decode_rejection(stored(Rejected("x" * 20_000))).reason) == LONGEST_REJECTION == 10_000


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"reason":"x","detail":1}', b'{"reason":"x","detail":"","undone":[1]}']
)
def test_other_bytes_are_corrupt(body: bytes) -> None:
    with pytest.raises(RecordCorrupt):
        decode_rejection(body)
