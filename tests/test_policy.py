"""Policies that can work, and every reason why one cannot."""

import ast
import inspect
import re
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis import Declared, Local, Opaque, Policy, Reject, Wait, days, hours, minutes, seconds
from nebis.core.record import EffectsMode
from nebis.declaration import PolicyOptions
from nebis.policy import WAIT_BOUND, microseconds

POLICY = Policy(effects=Local)


@pytest.mark.parametrize("effects", [Local, Declared, Opaque])
def test_defaults_work_for_every_kind_of_effects(effects: EffectsMode) -> None:
    assert Policy(effects=effects).faults() == []


def test_defaults_are_the_published_ones() -> None:
    assert POLICY.lease == seconds(30)
    assert POLICY.renewal == seconds(10)
    assert POLICY.effect_timeout == seconds(20)
    assert POLICY.in_flight == Reject()
    assert Wait().longest == seconds(2)
    assert seconds(30) == WAIT_BOUND
    assert POLICY.waiters_limit == 32
    assert POLICY.retention == hours(24)
    assert POLICY.metadata_retention == days(30)
    assert POLICY.doubt_deadline == hours(72)
    assert POLICY.recoveries_limit == 10
    assert (POLICY.backoff_first, POLICY.backoff_longest) == (seconds(1), minutes(5))
    assert POLICY.command_limit_bytes == 1024 * 1024
    assert POLICY.result_limit_bytes == 4 * 1024 * 1024


def test_every_default_says_why() -> None:
    """Each default is followed, or shared with the next one, by a comment or a docstring."""
    source = inspect.getsource(Policy)
    [body] = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    lines = source.splitlines()
    unexplained = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            assert node.end_lineno is not None
            rest = lines[node.end_lineno :]
            while rest and re.match(r"^    \w+: ", rest[0]):
                rest = rest[1:]
            if not rest or not rest[0].strip().startswith(("#", '"""')):
                unexplained.append(ast.unparse(node.target))

    # Explained by a sentence about back-off above them.
    assert [name for name in unexplained if not name.startswith("backoff")] == []


def test_whatever_is_a_choice_can_be_chosen_per_operation() -> None:
    choices = {field.name for field in fields(Policy) if field.init}
    assert PolicyOptions.__annotations__.keys() == choices - {"effects"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(POLICY, lease=seconds(29)), "three renewals"),
        (replace(POLICY, effect_timeout=seconds(30)), "below the lease"),
        (replace(POLICY, retention=minutes(4)), "could expire"),
        (replace(POLICY, in_flight=Wait(longest=seconds(31))), "Wait"),
        (replace(POLICY, in_flight=Wait(longest=timedelta(0))), "Wait"),
        (replace(POLICY, waiters_limit=0), "waiters_limit"),
        (replace(POLICY, shortest_key=0), "shortest_key"),
        (replace(POLICY, recoveries_limit=0), "recoveries_limit"),
        (replace(POLICY, metadata_retention=timedelta(0)), "metadata_retention"),
        (replace(POLICY, confirm=timedelta(seconds=-1)), "confirm"),
        (replace(POLICY, effects=Opaque, single_transaction=True), "effects=Local"),
    ],
)
def test_choice_that_cannot_work_is_told_with_its_name(changed: Policy, says: str) -> None:
    """F058."""
    [fault] = changed.faults()

    assert says in fault


def test_all_faults_are_told_at_once() -> None:
    broken = replace(POLICY, lease=timedelta(0), waiters_limit=0, confirm=timedelta(0))

    assert len(broken.faults()) >= 4


@given(st.timedeltas(), st.timedeltas(), st.timedeltas())
def test_policy_without_faults_keeps_its_promises(
    lease: timedelta, renewal: timedelta, effect_timeout: timedelta
) -> None:
    """F058: for any spans that are accepted, three renewals fit into a lease and a call ends before it."""
    chosen = replace(POLICY, lease=lease, renewal=renewal, effect_timeout=effect_timeout)
    try:
        faults = chosen.faults()
    except OverflowError:
        return  # Refused by whoever declares the operation, as a wrong value.

    if not faults:
        assert chosen.lease_us >= 3 * microseconds(renewal) > 0
        assert 0 < microseconds(effect_timeout) < chosen.lease_us
        assert chosen.kept.outcome_us >= chosen.recoveries_limit * chosen.lease_us


def test_spans_are_counted_in_whole_microseconds() -> None:
    assert microseconds(seconds(1.5)) == 1_500_000
    assert POLICY.lease_us == 30_000_000
    assert POLICY.kept.outcome_us == microseconds(hours(24))
    assert POLICY.kept.metadata_us == microseconds(days(30))
