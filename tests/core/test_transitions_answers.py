"""Answers are values: equal when they say the same, and listed whole in their unions."""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_args

import pytest

from nebis.core import answers
from nebis.core.answers import Answer, Intended, Kept, Locked, Refusal, Refused
from nebis.core.owning import KEPT, KEPT_BEFORE
from tests.core.records import called, running


def test_every_answer_is_in_the_union_or_is_locked() -> None:
    classes = {kind for _, kind in inspect.getmembers(answers, dataclasses.is_dataclass) if inspect.isclass(kind)}
    own = {kind for kind in classes if kind.__module__ == answers.__name__}

    assert own == {*get_args(Answer), Locked}


def test_answers_that_say_the_same_are_equal() -> None:
    assert Refused(reason=Refusal.FENCED, found=running()) == Refused(reason=Refusal.FENCED, found=running())
    assert Kept() != Kept(is_repeated=True)
    assert (Kept(is_repeated=False), Kept(is_repeated=True)) == (KEPT, KEPT_BEFORE)
    assert Intended(effect=called()) == Intended(effect=called(), is_repeated=False)


@pytest.mark.parametrize("reason", list(Refusal))
def test_a_refusal_reads_as_a_word(reason: Refusal) -> None:
    assert reason.value == reason.name.lower()
