"""The page about planted bugs, made from the list itself."""

from tests.planted.bugs import BUGS

PAGE = "docs/explanation/planted-bugs.md"
LAYERS = ("model", "simulation", "store suite", "http suite")

_HEAD = """\
# Planted bugs: can the tests see?

A test that never fails proves little. Each mistake below is put into the code, one at a time and in a process of its
own; every layer that is marked must then fail. `python -m nebis.testing.prove --size ci` tries a third of them, another
third with each commit, and `--size night` tries all. `python -m tests.planted --only "unique index dropped"` tries one.

This page is made from the list in `tests/planted/bugs.py` by `python -m tests.planted --table`.

"""


def page() -> str:
    """Return the page."""
    rows = [
        "| " + " | ".join([bug.name, bug.lesson, *("x" if layer in bug.layers else "" for layer in LAYERS)]) + " |"
        for bug in BUGS
    ]
    head = ["| bug | lesson | " + " | ".join(LAYERS) + " |", "|---|---|" + "---|" * len(LAYERS)]
    return _HEAD + "\n".join([*head, *rows]) + "\n"
