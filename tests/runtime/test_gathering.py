"""How verbs that wait are put into batches."""

from __future__ import annotations

import pytest

from nebis.core.verbs import Claim, Renew
from nebis.errors import Overloaded, RecordCorrupt
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt
from nebis.runtime.gathering import (
    ENOUGH_OF_ONE_KIND,
    LANES,
    MOST_LANES,
    WORTH_ANOTHER_LANE,
    Gathering,
    Member,
    blames_a_member,
    own_copy,
)
from tests.runtime.verbs import claim, completion, renewal


def names(batch: list[Member[str]]) -> list[str]:
    return [waiter for _, _, waiter in batch]


def test_what_waits_is_shared_between_the_lanes_that_are_free() -> None:
    gathering: Gathering[str] = Gathering(lanes=2)
    for number in range(5):
        gathering.add(claim(number), str(number))

    first, second, third = gathering.take(), gathering.take(), gathering.take()

    assert names(first) == ["0", "1", "2"]
    assert names(second) == ["3", "4"]
    assert third == []
    assert gathering.waiting == 0


def test_lanes_of_different_lengths_become_alike() -> None:
    gathering: Gathering[str] = Gathering(lanes=2)
    gathering.add(claim(0), "0")
    short = gathering.take()
    for number in range(1, 10):
        gathering.add(claim(number), str(number))

    long = gathering.take()
    gathering.leave(short)
    rest = gathering.take()

    assert names(long) == ["1", "2", "3", "4", "5"]
    assert names(rest) == ["6", "7", "8", "9"]


def test_claims_and_completions_go_together_in_proportion() -> None:
    gathering: Gathering[str] = Gathering(lanes=1, largest_batch=4)
    for number in range(6):
        gathering.add(claim(number), "claim")
    for number in range(10, 12):
        gathering.add(completion(number), "completion")

    batches = []
    while batch := gathering.take():
        batches.append(sorted(names(batch)))
        gathering.leave(batch)

    assert batches == [["claim"] * 3 + ["completion"]] * 2


def test_many_of_one_kind_go_alone_and_the_other_kind_with_the_next_lane() -> None:
    gathering: Gathering[str] = Gathering(lanes=2)
    for number in range(ENOUGH_OF_ONE_KIND + 1):
        gathering.add(claim(number), "claim")
        gathering.add(completion(100 + number), "completion")
    gathering.add(claim(50), "claim")

    first, second = gathering.take(), gathering.take()

    assert names(first) == ["claim"] * (ENOUGH_OF_ONE_KIND + 2)
    assert names(second) == ["completion"] * len(second)
    assert len(second) == ENOUGH_OF_ONE_KIND + 1


def test_callers_that_come_back_together_make_whole_batches_of_one_kind() -> None:
    """However they began: as many of each kind on each lane is what stays so for ever if they are sent together."""
    gathering: Gathering[str] = Gathering(lanes=2)
    for number in range(16):
        gathering.add(claim(number), "claim")
        gathering.add(completion(100 + number), "completion")
        gathering.add(claim(200 + number), "claim")
        gathering.add(completion(300 + number), "completion")

    lanes = [gathering.take(), gathering.take()]
    for turn in range(20):
        batch = lanes[turn % 2]
        gathering.leave(batch)
        for verb, identity, waiter in batch:
            number = int.from_bytes(identity, "big")
            gathering.add(completion(number) if isinstance(verb, Claim) else claim(1000 + number), waiter)
        lanes[turn % 2] = gathering.take()

    assert [len(batch) for batch in lanes] == [32, 32]
    assert all(len({type(verb) for verb, _, _ in batch}) == 1 for batch in lanes)


def test_few_of_either_kind_go_together_and_so_do_all_on_a_single_lane() -> None:
    for lanes, number in ((2, ENOUGH_OF_ONE_KIND - 1), (1, ENOUGH_OF_ONE_KIND)):
        gathering: Gathering[str] = Gathering(lanes=lanes)
        for each in range(number):
            gathering.add(claim(each), "claim")
            gathering.add(completion(100 + each), "completion")

        assert set(names(gathering.take())) == {"claim", "completion"}


def test_a_kind_that_waits_only_for_its_twins_lets_the_other_go() -> None:
    for kind, other in ((claim, completion), (completion, claim)):
        gathering: Gathering[str] = Gathering(lanes=2, is_shared_out=False)
        for number in range(ENOUGH_OF_ONE_KIND):
            gathering.add(kind(number), "first")
        gathering.take()
        for number in range(ENOUGH_OF_ONE_KIND):
            gathering.add(kind(number), "twin")
        gathering.add(other(100), "other")

        assert names(gathering.take()) == ["other"]


def test_neither_claims_nor_completions_keep_the_other_waiting() -> None:
    for rare, flood in ((claim, completion), (completion, claim)):
        gathering: Gathering[str] = Gathering(lanes=1, largest_batch=2)
        for number in range(100):
            gathering.add(flood(number), "flood")
        gathering.add(rare(200), "rare")

        assert "rare" in names(gathering.take())


def test_another_lane_is_worth_it_once_as_many_wait_as_are_under_way() -> None:
    gathering: Gathering[str] = Gathering(lanes=2, is_shared_out=False)
    for number in range(3):
        gathering.add(claim(number), str(number))
    batch = gathering.take()

    worth = []
    for number in range(10, 13):
        gathering.add(claim(number), str(number))
        worth.append(gathering.is_worth_a_lane)

    assert worth == [False, False, True]
    gathering.leave(batch)
    gathering.take()
    assert gathering.is_worth_a_lane is False


def test_there_are_more_lanes_than_usual_where_each_still_carries_many() -> None:
    gathering: Gathering[str] = Gathering(lanes=MOST_LANES)
    for number in range(MOST_LANES * WORTH_ANOTHER_LANE):
        gathering.add(claim(number), str(number))

    is_worth_it, batches = [], []
    while batch := gathering.take():
        batches.append(len(batch))
        is_worth_it.append(gathering.is_worth_another_lane)

    assert batches == [WORTH_ANOTHER_LANE] * MOST_LANES
    assert is_worth_it == [True] * (MOST_LANES - 1) + [False]
    assert gathering.waiting == 0


def test_there_are_no_more_lanes_than_usual_for_fewer() -> None:
    gathering: Gathering[str] = Gathering(lanes=MOST_LANES)
    members = MOST_LANES * WORTH_ANOTHER_LANE - LANES
    for number in range(members):
        gathering.add(claim(number), str(number))

    batches = [gathering.take() for _ in range(LANES)]
    for number in range(LANES):
        gathering.add(claim(members + number), "too late")

    assert list(map(len, batches)) == [members // LANES] * LANES
    assert not gathering.is_worth_another_lane  # There would be enough, but nearly all are under way.
    for batch in batches:
        gathering.leave(batch)
    assert names(gathering.take()) == ["too late"]


def test_all_other_writes_of_owners_are_a_kind_of_their_own_and_the_longer_queue_goes_first() -> None:
    gathering: Gathering[str] = Gathering(lanes=1)
    gathering.add(claim(1), "claim")
    gathering.add(renewal(2), "renewal")
    gathering.add(renewal(3), "renewal")

    first = gathering.take()
    gathering.leave(first)
    second = gathering.take()

    assert {type(verb) for verb, _, _ in first} == {Renew}
    assert {type(verb) for verb, _, _ in second} == {Claim}


def test_twins_wait_until_the_first_of_them_was_answered() -> None:
    gathering: Gathering[str] = Gathering(lanes=2)
    for name in ("first", "second", "third"):
        gathering.add(claim(1), name)

    batch = gathering.take()
    assert names(batch) == ["first"]
    assert gathering.take() == []

    gathering.leave(batch)
    assert names(gathering.take()) == ["second"]
    assert gathering.waiting == 1


def test_a_flood_of_one_operation_does_not_hold_up_another() -> None:
    gathering: Gathering[str] = Gathering(lanes=1, largest_batch=4)
    for number in range(100):
        gathering.add(claim(number, operation="flood"), "flood")
    gathering.add(claim(200, operation="rare"), "rare")

    assert "rare" in names(gathering.take())


def test_a_claim_that_would_wait_too_long_is_refused_and_an_owner_never_is() -> None:
    gathering: Gathering[str] = Gathering(longest_queue=2)
    gathering.add(claim(1), "1")
    gathering.add(claim(2), "2")

    with pytest.raises(Overloaded, match="same key"):
        gathering.add(claim(3), "3")

    for number in range(10, 20):
        gathering.add(renewal(number), "owner")
    assert gathering.waiting == 12


def test_members_that_are_put_apart_go_one_by_one_and_first() -> None:
    gathering: Gathering[str] = Gathering(lanes=1)
    gathering.add(claim(1), "1")
    gathering.add(claim(2), "2")
    batch = gathering.take()
    gathering.add(claim(3), "3")
    gathering.put_apart(batch)
    gathering.leave(batch)

    batches = []
    while batch := gathering.take():
        batches.append(names(batch))
        gathering.leave(batch)

    assert batches == [["1"], ["2"], ["3"]]


@pytest.mark.parametrize(
    ("error", "blames"),
    [
        (Spoilt("a constraint"), True),
        (RowLocked("somebody"), True),
        (RecordCorrupt("half a row"), True),
        (DefiniteFailure("no connection"), False),
        (IndefiniteFailure("cut"), False),
    ],
)
def test_only_what_a_member_may_be_the_cause_of_splits_a_batch(error: Exception, blames: bool) -> None:
    assert blames_a_member(error) is blames


def test_each_waiter_gets_an_exception_of_its_own() -> None:
    error = RecordCorrupt("half a row")

    copy = own_copy(error)

    assert copy is not error
    assert type(copy) is RecordCorrupt
    assert str(copy) == str(error)
