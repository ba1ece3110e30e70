"""Meters, by themselves; that every store counts alike is what the conformance suite says."""

from nebis.core.velocity import KEPT_SLOTS, Charge, Meter, add, wait_us

CHARGE = Charge(bucket=bytes(32), window_us=100, limit=3)


def test_slots_are_never_shorter_than_a_tenth() -> None:
    assert Charge(bucket=b"", window_us=101, limit=1).slot_us == 11
    assert CHARGE.kept_us == 110


def test_meter_fills_up_and_says_when_there_is_room() -> None:
    meter = None
    for now in (0, 5, 25):
        meter = add(meter, CHARGE, now)

    assert meter == Meter(2, (1, 0, 2) + (0,) * 8)
    assert add(meter, CHARGE, 30) is None
    assert wait_us(meter, CHARGE, 30) == 80
    assert add(meter, CHARGE, 109) is None
    assert add(meter, CHARGE, 110) == Meter(11, (1,) + (0,) * 8 + (1, 0))


def test_each_slot_is_counted_by_itself() -> None:
    meter = add(add(None, CHARGE, 9), CHARGE, 10)

    assert meter == Meter(1, (1, 1) + (0,) * 9)


def test_room_is_made_by_the_oldest_alone_if_that_is_enough() -> None:
    meter = Meter(2, (2, 0, 1) + (0,) * 8)

    assert wait_us(meter, CHARGE, 29) == 81
    assert wait_us(meter, CHARGE, 109) == 1


def test_meter_that_rested_for_long_is_empty() -> None:
    meter = Meter(0, (3,) * KEPT_SLOTS)

    assert add(meter, CHARGE, 10_000) == Meter(1_000, (1,) + (0,) * 10)


def test_clock_that_steps_back_counts_where_it_was() -> None:
    assert add(Meter(50, (1,) + (0,) * 10), CHARGE, 0) == Meter(50, (2,) + (0,) * 10)


def test_what_never_fits_is_told_to_come_back_after_the_window() -> None:
    heavy = Charge(bucket=bytes(32), window_us=100, limit=3, weight=4)

    assert add(None, heavy, 0) is None
    assert wait_us(None, heavy, 0) == 100


def test_what_is_given_back_makes_room() -> None:
    full = Meter(0, (3,) + (0,) * 10)
    given_back = Charge(bucket=bytes(32), window_us=100, limit=3, weight=-1)

    meter = add(full, given_back, 10)

    assert meter is not None
    assert add(meter, CHARGE, 10) is not None
