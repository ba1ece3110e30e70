"""Record ids that are made from their bytes."""

import copy
import pickle
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.ids import id_of


@given(stored=st.binary(min_size=16, max_size=16))
def test_an_id_of_bytes_is_the_uuid_of_these_bytes(stored: bytes) -> None:
    made, usual = id_of(stored), UUID(bytes=stored)

    assert type(made) is UUID
    assert made == usual
    assert (hash(made), str(made), made.bytes, made.is_safe) == (hash(usual), str(usual), stored, usual.is_safe)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == usual


def test_an_id_of_bytes_cannot_be_changed() -> None:
    made = id_of(bytes(16))

    with pytest.raises(TypeError, match="immutable"):
        made.int = 1  # type: ignore[misc]  # The point of the test.
