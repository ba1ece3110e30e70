"""What may import what, beyond the order of layers, which import-linter checks."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.repository import PACKAGE, relative, text_files

# Imported inside the function that meets a class of theirs, which only code that already uses them can hand over; or
# that does without, to the same effect, where they are not installed.
MET_ONLY_WHERE_USED = {"core/codec_model.py": {"pydantic", "msgspec"}, "core/jsontext.py": {"orjson"}}

STANDARD_LIBRARY_ONLY = ("core", "flows", "ports", "flow.py", "errors.py", "refusals.py", "policy.py", "keys.py")

# Flows ask for these through ports, so that a run can be replayed and a crash put between any two asks.
WITHOUT_CLOCK_CHANCE_OR_IO = ("core", "flows", "errors.py", "refusals.py", "policy.py")
CLOCK_CHANCE_AND_IO = frozenset(
    {"asyncio", "concurrent", "logging", "multiprocessing", "queue", "random", "secrets", "select", "socket", "sqlite3"}
    | {"ssl", "subprocess", "tempfile", "threading", "time"}
)


def _python_files(*names: str) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = PACKAGE / name
        if path.is_dir():
            found += [file for file in text_files(path) if file.suffix == ".py"]
        elif path.exists():
            found.append(path)
    return found


def _imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case _:
                continue


def _top(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("path", _python_files(*STANDARD_LIBRARY_ONLY), ids=relative)
def test_the_inner_layers_import_the_standard_library_only(path: Path) -> None:
    allowed = MET_ONLY_WHERE_USED.get(path.relative_to(PACKAGE).as_posix(), set())
    foreign = {_top(module) for module in _imported_modules(path)} - sys.stdlib_module_names - {"nebis"}

    assert not foreign - allowed


@pytest.mark.parametrize("path", _python_files(*WITHOUT_CLOCK_CHANCE_OR_IO), ids=relative)
def test_core_and_flows_import_no_clock_chance_or_io(path: Path) -> None:
    impure = {_top(module) for module in _imported_modules(path)} & CLOCK_CHANCE_AND_IO

    assert not impure


@pytest.mark.parametrize("path", [file for file in text_files(PACKAGE) if file.suffix == ".py"], ids=relative)
def test_a_module_imports_from_the_place_where_a_name_lives(path: Path) -> None:
    """The package root imports the façades, so importing from it would turn the layers into a cycle."""
    if path.relative_to(PACKAGE).parts[0] in {"cli", "dashboard", "demo", "testing"}:
        return

    assert "nebis" not in _imported_modules(path)


@pytest.mark.parametrize("module", ["nebis", "nebis.cli"])
def test_importing_nebis_loads_no_third_party_module(module: str) -> None:
    script = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        f"import {module}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    outcome = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)

    # The interpreter's own build settings live in a module whose name holds the platform, so that no list has it.
    loaded = {_top(name) for name in json.loads(outcome.stdout) if not name.startswith("_sysconfigdata")}

    assert "nebis" in loaded
    assert not loaded - sys.stdlib_module_names - {"nebis"}
