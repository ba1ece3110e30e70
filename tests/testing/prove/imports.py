"""What a module imports in the end, read from the sources: also what is imported late, inside a function."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp

from tests.tidy.repository import ROOT


def files_of(modules: Iterable[str]) -> set[str]:
    """Return every file of ours that these modules need, by its path in the repository."""
    ours, nebis, waiting = set[str](), set[str](), list(modules)
    while waiting:
        name = waiting.pop()
        if name.startswith("nebis"):
            nebis.add(name)
        elif name not in ours:
            ours.add(name)
            waiting += _imported_by(_file_of(name))
    graph = _graph()
    needed = nebis.union(*(graph.find_upstream_modules(name) for name in nebis))
    return {_file_of(name).relative_to(ROOT).as_posix() for name in ours | needed}


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("nebis", cache_dir=None)


def _imported_by(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [_source_of(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in ("nebis", "tests", "examples"))


def _source_of(module: str, name: str) -> str:
    """Return the module that a name comes from; `nebis` itself only passes on what others have."""
    if module == "nebis":
        return _passed_on().get(name, f"nebis.{name}")
    return f"{module}.{name}" if _file_of(f"{module}.{name}").exists() else module


@cache
def _passed_on() -> dict[str, str]:
    tree = ast.parse(_file_of("nebis").read_text())
    sources = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in sources for alias in node.names}


def _file_of(name: str) -> Path:
    path = (ROOT / "src" if name.startswith("nebis") else ROOT) / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
