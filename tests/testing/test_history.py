"""The checker is checked: it believes every true history and sees through every false one (V3)."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nebis.testing.history import History, HistoryUnusable, check
from tests.testing.histories import RULES, false_story, true_story

TRUE_STORIES = 3000
FALSE_STORIES = 200


def history_of(entries: list[dict[str, Any]]) -> History:
    history = History()
    for entry in entries:
        history.add(entry)
    return history


def test_true_histories_are_believed() -> None:
    for seed in range(TRUE_STORIES):
        assert check(history_of(true_story(seed))) == [], f"seed {seed}"


@pytest.mark.parametrize("rule", RULES)
def test_history_that_breaks_one_rule_is_caught_for_that_rule_and_no_other(rule: str) -> None:
    for seed in range(FALSE_STORIES):
        broken = {violation.rule for violation in check(history_of(false_story(rule, seed)))}

        assert broken == {rule}, f"seed {seed}"


def test_violation_says_which_key_and_what() -> None:
    entries = [
        {"type": "invoke", "tenant": "acct", "key": "k", "at": 1, "call": "c1", "command": "pay", "nonce": "n1"},
        {"type": "ok", "tenant": "acct", "key": "k", "at": 3, "call": "c1", "digest": "a"},
        {"type": "completed", "tenant": "acct", "key": "k", "at": 2, "record": "r"},
    ]

    [violation] = check(history_of(entries))

    assert str(violation) == "H1 acct/k: a success was acknowledged and the bank shows 0 effects, not 1"


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{"type": "invoke", "tenant": "acct", "key": "k", "at": 1, "call": "c1", "command": "pay", "nonce": "n1"}],
        [
            {"type": "invoke", "tenant": "acct", "key": "k", "at": 1, "call": "c1", "command": "pay", "nonce": "n1"},
            {"type": "info", "tenant": "acct", "key": "k", "at": 2, "call": "c1"},
        ],
        [{"type": "ok", "tenant": "acct", "key": "k", "at": 3, "call": "never invoked", "digest": "a"}],
    ],
    ids=["empty", "nobody-answered", "nothing-definite", "lines-lost"],
)
def test_history_that_proves_nothing_is_refused(entries: list[dict[str, Any]]) -> None:
    with pytest.raises(HistoryUnusable):
        check(history_of(entries))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"type": "ok", "tenant": "acct", "key": "k"}',
        '{"type": "stranger", "tenant": "acct", "key": "k", "at": 1}',
        '{"type": "effect", "key": "k", "at": 1}',
    ],
)
def test_line_that_means_nothing_is_refused(line: str) -> None:
    with pytest.raises(HistoryUnusable, match="line 1 is no event"):
        History().add_lines([line])


def test_time_grows_with_the_length_of_a_history_and_not_faster() -> None:
    """A quadratic checker would need two hundred times as long for twenty times the calls on one key."""
    short, long = (_seconds_for(calls) for calls in (2_000, 40_000))

    assert long < 100 * short


def _seconds_for(calls: int) -> float:
    history = History()
    history.add({"type": "effect", "tenant": "acct", "key": "k", "at": 0})
    history.add({"type": "completed", "tenant": "acct", "key": "k", "at": 0, "record": "r"})
    for number in range(calls):
        of_call = {"tenant": "acct", "key": "k", "call": f"c{number}"}
        history.add({"type": "invoke", "at": 2 * number, "command": "pay", "nonce": "n", **of_call})
        history.add({"type": "ok", "at": 2 * number + 1, "digest": "a", "body_nonce": "n", **of_call})
    began = time.process_time()
    assert check(history) == []
    return time.process_time() - began


def test_command_tells_violations_and_refuses_what_it_cannot_judge(tmp_path: Path) -> None:
    def judge(entries: list[dict[str, Any]]) -> tuple[int, str, str]:
        file = tmp_path / "history.jsonl"
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        command = [sys.executable, "-m", "nebis.testing.history", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = judge(true_story(1))
    assert (code, "0 violations" in out) == (0, True)
    code, out, _ = judge(false_story("H1", 1))
    assert (code, out.startswith("H1 ")) == (1, True)
    code, out, error = judge([])
    assert (code, out, "nobody was told anything definite" in error) == (2, "", True)
