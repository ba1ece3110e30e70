import re
from pathlib import Path

import pytest

from tests.tidy.repository import PACKAGE, relative, text_files

LINE_LIMIT = 450

# Written as patterns that do not match themselves.
PROMISES_TO_DO_IT_LATER = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b")
ONE_MACHINE_ONLY = re.compile(r"(?<![\w.])/(root|work|home/\w+|Users/\w+)/")
PACKAGE_REGISTRY = re.compile(
    r"pypi\.[o]rg|python[h]osted\.org|npmjs\.(com|org)|--(extra-)?index[-]url|registry\.[a-z]+\."
)


@pytest.mark.parametrize("path", [path for path in text_files(PACKAGE) if path.suffix == ".py"], ids=relative)
def test_a_source_file_is_short_enough_to_be_read(path: Path) -> None:
    lines = len(path.read_text().splitlines())

    assert lines <= LINE_LIMIT, f"{lines} lines: split it by verb or by use case"


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a promise to do it later: do it, or report it", PROMISES_TO_DO_IT_LATER),
        ("a path that exists on one machine only", ONE_MACHINE_ONLY),
        ("the address of a package registry", PACKAGE_REGISTRY),
    ],
    ids=["promise", "path", "registry"],
)
def test_no_file_contains(what: str, pattern: re.Pattern[str]) -> None:
    found = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]

    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (PROMISES_TO_DO_IT_LATER, "# TO" + "DO: later"),
        (ONE_MACHINE_ONLY, "see /ro" + "ot/notes"),
        (ONE_MACHINE_ONLY, "'/home" + "/ann/nebis'"),
        (PACKAGE_REGISTRY, "https://py" + "pi.org/simple"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
