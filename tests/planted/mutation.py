"""Mutation testing of the core: change one thing at a time, and see whether the core's own tests notice.

    python -m tests.planted.mutation [--part 20 --turn 3] [--module owning]

Each mutant lives in a forked child, which loads the changed module in place of the true one and runs `tests/core`.
What survives for a reason is listed in `tests/planted/survivors.txt`, by module, line and change.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "nebis" / "core"
SURVIVORS = Path(__file__).parent / "survivors.txt"
LONGEST_SECONDS = 120

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change."""

    module: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


class _Changer(ast.NodeTransformer):
    """Makes the change of one number, and only counts the others."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.seen = 0
        self.made: tuple[int, str] | None = None

    def _is_wanted(self, node: ast.AST, change: str) -> bool:
        self.seen += 1
        if self.seen - 1 != self._wanted:
            return False
        self.made = (getattr(node, "lineno", 0), change)
        return True

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]
            if self._is_wanted(node, f"{type(operator).__name__} to {other.__name__}"):
                node.ops[at] = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        if self._is_wanted(node, f"{type(node.op).__name__} to {other.__name__}"):
            node.op = other()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._is_wanted(node, "without not"):
            return node.operand
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = _OPERATORS.get(type(node.op))
        if other is not None and self._is_wanted(node, f"{type(node.op).__name__} to {other.__name__}"):
            node.op = other()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_wanted(node, f"{node.value} to {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int) and self._is_wanted(node, f"{node.value} to {node.value + 1}"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)  # An annotation does nothing.
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(part) for part in node.body]  # How a dataclass is made is no decision of the core.
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node  # What it states is tested by whatever would break it.


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    text, number = path.read_text(), 0
    while True:
        changer = _Changer(number)
        changed = ast.fix_missing_locations(changer.visit(ast.parse(text)))
        if changer.made is None:
            return
        yield Mutant(path.stem, *changer.made, ast.unparse(changed))
        number += 1


class _Impostor(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads a mutant in place of the true module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != f"nebis.core.{self._mutant.module}":
            return None
        return importlib.util.spec_from_loader(name, self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, f"{self._mutant.module} (mutant)", "exec"), module.__dict__)


def is_killed(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Run the tests against a mutant, in a child of this process; whatever hangs or breaks down is noticed too."""
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST_SECONDS)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.meta_path.insert(0, _Impostor(mutant))
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]) != 0))
    return os.waitpid(child, 0)[1] != 0


def _is_noticed(mutant: Mutant) -> bool:
    """Ask the module's own tests first, which are a few, and then all."""
    own = [str(path) for path in sorted(ROOT.glob(f"tests/core/test_*{mutant.module}*.py"))]
    return bool(own and is_killed(mutant, own)) or is_killed(mutant, ["tests/core"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--module")
    asked = parser.parse_args()
    excused = set(SURVIVORS.read_text().splitlines()) if SURVIVORS.exists() else set()
    modules = sorted(CORE.glob(f"{asked.module or '*'}.py"))
    every = [mutant for path in modules for mutant in mutants_of(path)]
    chosen = [mutant for at, mutant in enumerate(every) if at % asked.part == asked.turn]
    survived = [
        str(mutant) for mutant in chosen if str(mutant) not in excused and not is_killed(mutant, ["tests/core"])
    ]
    score = 100 * (len(chosen) - len(survived)) // max(1, len(chosen))
    for survivor in survived:
        sys.stderr.write(f"{survivor}\n")
    print(json.dumps({"mutants": len(chosen), "mutation_score": score, "violations": []}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
