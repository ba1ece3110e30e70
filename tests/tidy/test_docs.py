"""Prose that names code goes stale in silence; here every name in the documentation is looked up."""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.repository import PACKAGE, ROOT, relative, text_files

FENCED_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK_TARGET = re.compile(r"\]\(([^)\s]+)\)")
DOTTED_NAME = re.compile(r"nebis(?:\.[A-Za-z_]\w*)+")
FILE_NAME = re.compile(r"[\w.-]+\.(?:cfg|md|py|sql|toml|typed)")
SOURCE_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
MAKE_TARGET = re.compile(r"make ([a-z-]+)\b.*")

# The public object is called `nebis` in examples, so its methods read like names of the package.
FACADES = ("Nebis", "AsyncNebis")


def _documents() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def _code_spans(text: str) -> Iterator[str]:
    yield from CODE_SPAN.findall(FENCED_BLOCK.sub("", text))


@cache
def _file_names() -> frozenset[str]:
    return frozenset(path.name for path in text_files()) | {"py.typed"}


@cache
def _make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _attribute_exists(owner: object, names: list[str]) -> bool:
    for name in names:
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def _name_exists(dotted: str) -> bool:
    parts = dotted.split(".")
    package = importlib.import_module("nebis")
    if any(_attribute_exists(getattr(package, facade, None), parts[1:]) for facade in FACADES):
        return True
    for split in range(len(parts), 0, -1):
        module = ".".join(parts[:split])
        try:
            owner = importlib.import_module(module)
        except ModuleNotFoundError as missing:
            if missing.name is None or not module.startswith(missing.name):
                raise
            continue
        return _attribute_exists(owner, parts[split:])
    return False


def _is_path(span: str) -> bool:
    """Tell `src/nebis/core` and `core/record.py` from `text/plain`, which nobody has to find."""
    if "/" not in span or not SOURCE_PATH.fullmatch(span):
        return False
    first = span.partition("/")[0]
    return (ROOT / first).exists() or (PACKAGE / first).exists() or FILE_NAME.fullmatch(Path(span).name) is not None


def _fault(span: str) -> str | None:
    dotted = DOTTED_NAME.match(span)
    target = MAKE_TARGET.fullmatch(span)
    if target is not None:
        return None if target[1] in _make_targets() else "no such make target"
    if _is_path(span):
        return None if (ROOT / span).exists() or (PACKAGE / span).exists() else "no such path"
    if FILE_NAME.fullmatch(span) and not dotted:
        return None if span in _file_names() else "no file of this name"
    if dotted is not None:
        return None if _name_exists(dotted[0]) else "no such name"
    return None


@pytest.mark.parametrize("document", _documents(), ids=relative)
def test_every_name_and_path_in_backticks_exists(document: Path) -> None:
    faults = [f"`{span}`: {fault}" for span in _code_spans(document.read_text()) if (fault := _fault(span))]

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("document", _documents(), ids=relative)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    targets = [
        target.partition("#")[0]
        for target in LINK_TARGET.findall(FENCED_BLOCK.sub("", document.read_text()))
        if "://" not in target and not target.startswith(("#", "mailto:"))
    ]

    assert not [target for target in targets if not (document.parent / target).exists()]


@pytest.mark.parametrize(
    "span",
    [
        "src/nebis/no_such_file.py",
        "core/no_such_file.py",
        "no_such_file.py",
        "nebis.no_such_name",
        "make no-such-target",
    ],
)
def test_a_stale_name_is_found(span: str) -> None:
    assert _fault(span) is not None


@pytest.mark.parametrize(
    "span", ["text/plain", "Idempotency-Key", "tests/conftest.py", "cli/app.py", "make test", "nebis.cli.main"]
)
def test_a_true_name_passes(span: str) -> None:
    assert _fault(span) is None
