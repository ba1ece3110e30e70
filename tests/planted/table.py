"""The page about planted bugs, made from the list itself."""

from tests.planted.bugs import BUGS

PAGE = "docs/explanation/planted-bugs.md"
LAYERS = ("model", "simulation", "store suite", "http suite")

_HEAD = """\
# Planted bugs: can the tests see?

A test that never fails proves little. Each mistake below is put into the code, one at a time and in a process of its
own; every layer that is marked must then fail. `make prove SIZE=ci` tries a third of them, another
third with each commit, and `--size night` tries all. `python -m tests.planted --only "unique index dropped"` tries one.

This page is made from the list in `tests/planted/bugs.py` by `python -m tests.planted --table`.

"""
_TAIL = """
## Mutation

The bugs above are those that somebody thought of. `python -m tests.planted.mutation` makes the others: it changes every
comparison, condition, operator and number of `core/`, drops every refusal, one at a time, and runs the core's own tests
against each. A mutant that no test notices either gets a test, or behaves like the true code and is listed with the
reason in `tests/planted/survivors.txt`. Anything else is a violation, and so is an entry of that list that is no longer
true. The score is the share of killed mutants among those that can be told from the true code.
"""


def page() -> str:
    """Return the page."""
    rows = [
        "| " + " | ".join([bug.name, bug.lesson, *("x" if layer in bug.layers else "" for layer in LAYERS)]) + " |"
        for bug in BUGS
    ]
    head = ["| bug | lesson | " + " | ".join(LAYERS) + " |", "|---|---|" + "---|" * len(LAYERS)]
    return _HEAD + "\n".join([*head, *rows]) + "\n" + _TAIL
