"""The mutants of the core: every small change that is made to it, one at a time.

Changed are comparisons, conditions, operators, numbers and truth values; refusals, calls for their effect alone, breaks
and continues are dropped. Untouched is what decides nothing when it runs: annotations, decorators, how a class is made,
names for unions of types, texts, and assertions, which whatever breaks them tests.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

CORE = Path(__file__).parents[2] / "src" / "nebis" / "core"

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
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_IDLE_FIELDS = {"annotation", "returns", "decorator_list", "bases"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change. Its name says which, and is the same for as long as the code that is changed."""

    module: str
    name: str
    lines: range
    """Where the changed statement is, up to the change."""
    is_inside: bool
    """Whether the change is inside a function, which runs when it is called and not when the module is loaded."""
    number: int

    def compiled(self) -> CodeType:
        """Return the changed module."""
        path = CORE / f"{self.module}.py"
        tree = ast.parse(path.read_text())
        sites = _sites(tree)
        site = next(site for number, site in enumerate(sites) if number == self.number)
        site.put(site.after)
        return compile(ast.fix_missing_locations(tree), str(path), "exec")


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse((CORE / f"{module}.py").read_text())
    named: Counter[str] = Counter()
    for number, site in enumerate(_sites(tree)):
        name = f"{module}{site.owner}: {site.told()}"
        named[name] += 1
        if named[name] > 1:
            name += f" ({named[name]})"
        lines = range(site.statement_line, site.line + 1)
        yield Mutant(module, name, lines, site.is_inside, number)


class Impostor(importlib.abc.MetaPathFinder):
    """Loads a mutant in place of the true module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != f"nebis.core.{self._mutant.module}":
            return None
        place = str(CORE / f"{self._mutant.module}.py")
        return importlib.util.spec_from_file_location(name, place, loader=_Loader(self._mutant, name, place))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, name: str, place: str) -> None:
        super().__init__(name, place)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return self._mutant.compiled()


@dataclass(frozen=True, slots=True)
class _Site:
    """A place in a tree, and what might stand there instead."""

    owner: str
    """The function or class, with a dot before each part of its name."""
    is_inside: bool
    statement_line: int
    parent: ast.AST
    field: str
    at: int | None
    before: ast.AST
    after: ast.AST

    @property
    def line(self) -> int:
        return getattr(self.before, "lineno", self.statement_line)

    def put(self, node: ast.AST) -> None:
        """Let a node stand here."""
        if self.at is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.at] = node

    def told(self) -> str:
        """Say what is changed; a mere number is told with what is around it."""
        is_alone = not isinstance(self.before, ast.Constant)
        before = _text(self.before if is_alone else self.parent)
        self.put(self.after)
        after = _text(self.after if is_alone else self.parent)
        self.put(self.before)
        return f"{before} => {after}"


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _sites(node: ast.AST, owner: str = "", line: int = 0, *, is_inside: bool = False) -> Iterator[_Site]:
    """Yield every site below a node, always in the same order."""
    is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.Lambda)
    for field, value in ast.iter_fields(node):
        if field in _IDLE_FIELDS or (isinstance(node, ast.ClassDef) and field == "keywords"):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_idle(child):
                continue
            starts = child.lineno if isinstance(child, ast.stmt) else line
            for after in _instead_of(child, node, field, is_inside=is_inside):
                yield _Site(owner, is_inside, starts, node, field, at, child, after)
            named = f".{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
            yield from _sites(child, owner + named, starts, is_inside=is_inside)


def _is_idle(node: ast.AST) -> bool:
    """Tell whether a node decides nothing: an assertion, or a name for a type."""
    match node:
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.Assert():
            return True
        case ast.Expr(ast.Call(ast.Name("assert_never"))):
            return True
        case _:
            return False


def _instead_of(node: ast.AST, parent: ast.AST, field: str, *, is_inside: bool) -> Iterator[ast.AST]:
    """Yield what might stand in the place of a node."""
    match node:
        case ast.BinOp():
            yield from _other_operations(node, parent, is_inside=is_inside)
        case ast.Compare(left, ops, comparators):
            for at, operator in enumerate(ops):
                other = _COMPARISONS[type(operator)]()
                yield ast.Compare(left, [*ops[:at], other, *ops[at + 1 :]], comparators)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.AugAssign(target, operator, value) if type(operator) in _OPERATORS:
            yield ast.AugAssign(target, _OPERATORS[type(operator)](), value)
        case ast.Constant(int() as value) if field != "test":  # A loop without an end stays one.
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.expr() if field in ("test", "ifs") and not isinstance(node, ast.Constant):
            yield ast.UnaryOp(ast.Not(), node)


def _other_operations(node: ast.BinOp, parent: ast.AST, *, is_inside: bool) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left, ast.BitOr()) if isinstance(parent, ast.Call) and _is_isinstance(parent):
            yield left
        case ast.BinOp(op=ast.BitOr()) if not is_inside:
            return  # A union of types.
        case ast.BinOp(ast.Constant(bytes() | str()), ast.Mod()):
            return  # A text with gaps.
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)


def _is_isinstance(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "isinstance"
