"""The random marks of an attempt."""

import copy
import pickle
from uuid import RFC_4122, UUID

import pytest

from nebis.core.record import Nonce, RecordId
from nebis.core.verbs import Claim
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
def test_a_claim_is_made_with_an_id_that_is_whole_once_anybody_sees_it(has_leading_id: bool, version: int) -> None:
    def make(record_id: RecordId, nonce: Nonce) -> Claim:
        return claim(record_id=record_id, nonce=nonce)

    made = [claimed(make, has_leading_id=has_leading_id) for _ in range(2)]

    assert {type(each.record_id) for each in made} == {UUID}
    assert {(each.record_id.version, each.record_id.variant) for each in made} == {(version, RFC_4122)}
    assert len({each.record_id for each in made}) == len({each.nonce for each in made}) == 2
    assert all((each.record_id.bytes[:6] == each.identity[:6]) is has_leading_id for each in made)
