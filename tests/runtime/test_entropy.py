"""The random marks of an attempt."""

import copy
import pickle
from uuid import RFC_4122, UUID

import pytest

from nebis.runtime.entropy import draw


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
