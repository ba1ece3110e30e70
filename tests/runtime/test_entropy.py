"""The random marks of an attempt."""

import copy
import pickle
from uuid import RFC_4122, UUID

import pytest

from nebis.core.identity import Identity
from nebis.core.keygrammar import Key
from nebis.core.marks import Marks
from nebis.runtime.entropy import claimed, draw
from nebis.testing.conformance.specimens import claim


def test_a_record_id_is_a_uuid_like_any_other() -> None:
    record_id = draw().record_id

    assert type(record_id) is UUID
    assert (record_id.version, record_id.variant) == (7, RFC_4122)
    assert record_id == UUID(str(record_id))
    assert hash(record_id) == hash(UUID(str(record_id)))
    assert record_id.is_safe is UUID(str(record_id)).is_safe
    assert pickle.loads(pickle.dumps(record_id)) == copy.deepcopy(record_id) == record_id
    with pytest.raises(TypeError, match="immutable"):
        record_id.int = 1  # type: ignore[misc]  # The point of the test.


def test_no_two_draws_have_a_mark_in_common() -> None:
    drawn = [draw() for _ in range(1000)]

    assert len({each.record_id for each in drawn}) == len({each.nonce for each in drawn}) == len(drawn)
    assert {len(each.nonce) for each in drawn} == {16}


def test_later_record_ids_sort_behind_earlier_ones() -> None:
    drawn = [draw().record_id.int >> 80 for _ in range(100)]

    assert drawn == sorted(drawn)


@pytest.mark.parametrize(("has_leading_id", "version"), [(False, 7), (True, 8)])
def test_a_claim_is_made_with_a_whole_id(has_leading_id: bool, version: int) -> None:
    usual = claim()
    marks = Marks(Identity(usual.identity), usual.tenant, Key(usual.key), (), usual.terms, usual.command)

    made = [claimed(marks, has_leading_id=has_leading_id) for _ in range(2)]

    assert [marks(each.record_id, each.nonce) for each in made] == made

    assert {type(each.record_id) for each in made} == {UUID}
    assert {(each.record_id.version, each.record_id.variant) for each in made} == {(version, RFC_4122)}
    assert len({each.record_id for each in made}) == len({each.nonce for each in made}) == 2
    assert all((each.record_id.bytes[:6] == each.identity[:6]) is has_leading_id for each in made)
