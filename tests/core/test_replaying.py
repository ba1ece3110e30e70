"""A replay told from a few columns is what the state machine says of the whole record, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.answers import Replay
from nebis.core.record import OutcomeKind, Record, State, Told
from nebis.core.replaying import Ended
from nebis.core.transitions import transition
from nebis.core.verbs import Claim, ExpiredPolicy
from nebis.testing.conformance import specimens
from nebis.testing.conformance.specimens import FINGERPRINT, OTHER_FINGERPRINT, UNKNOWN_FINGERPRINT
from tests.core.records import EXPIRED, FORGOTTEN, IN_EVERY_STATE, NEXT_FENCE, NOW, completed, done

_FINGERPRINTS = st.sampled_from([FINGERPRINT, OTHER_FINGERPRINT, UNKNOWN_FINGERPRINT])
_INSTANTS = st.sampled_from([NOW, EXPIRED - 1, EXPIRED, FORGOTTEN, FORGOTTEN + 1]) | st.integers(0, 2 * FORGOTTEN)

_claims = st.builds(
    lambda fingerprints, by, when_expired, will_wait: replace(
        specimens.claim(by=by),
        fingerprints=tuple(fingerprints),
        terms=replace(specimens.claim(by=by).terms, when_expired=when_expired, will_wait=will_wait),
    ),
    st.lists(_FINGERPRINTS, min_size=1, max_size=3),
    st.sampled_from(["first", "second"]),
    st.sampled_from(ExpiredPolicy),
    st.booleans(),
)
_completed = st.builds(
    lambda fingerprint, expires_at, kind, effects: completed(
        fingerprint_version=fingerprint[0],
        fingerprint=fingerprint[1],
        expires_at=expires_at,
        outcome_kind=kind,
        effects=effects,
    ),
    _FINGERPRINTS,
    st.sampled_from([EXPIRED, NOW]),
    st.sampled_from(OutcomeKind),
    st.sampled_from([(), (done(),)]),
)


def is_told_from_columns(record: Record, verb: Claim, now: int) -> bool:
    return Ended(Told.of(record), record.fingerprint_version, record.fingerprint, now).answers(verb.fingerprints)


@given(record=_completed, verb=_claims, now=_INSTANTS)
def test_a_completed_record_is_replayed_exactly_when_the_state_machine_replays_it(
    record: Record, verb: Claim, now: int
) -> None:
    step = transition(record, verb, now, NEXT_FENCE)

    assert is_told_from_columns(record, verb, now) == isinstance(step.answer, Replay)
    assert not isinstance(step.answer, Replay) or step.record == record


@pytest.mark.parametrize("now", [NOW, EXPIRED, FORGOTTEN])
@pytest.mark.parametrize("state", [state for state in State if state is not State.COMPLETED])
def test_no_record_in_another_state_is_ever_replayed(state: State, now: int) -> None:
    step = transition(IN_EVERY_STATE[state], specimens.claim(by="second"), now, NEXT_FENCE)

    assert not isinstance(step.answer, Replay)


def test_what_is_told_of_a_record_is_what_it_says() -> None:
    record = completed()

    told = Told.of(record)

    for name in ("record_id", "operation", "outcome_kind", "outcome", "expires_at"):
        assert getattr(told, name) == getattr(record, name)
