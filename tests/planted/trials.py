"""The trial of a mutant: the core's own tests against the changed module, in a forked child.

Most changes are made to living functions, in the child of a process that has loaded the core and its tests. They are
asked of the tests that run the changed lines; no other test could tell a difference. A change of lines that run while
the core or its tests are loaded needs a process that loads them anew, and is asked of all tests, the nearest first.
"""

import gc
import json
import os
import resource
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import hypothesis
import msgspec  # noqa: F401 - what the tests need is loaded once, before any child begins.
import pydantic.dataclasses  # noqa: F401
import pytest

from tests.planted.mutants import CORE, Impostor, Mutant

LARGEST_BYTES = 2 * 1024**3
SURVIVED, KILLED, NOT_LOADED = (
    int(pytest.ExitCode.OK),
    int(pytest.ExitCode.TESTS_FAILED),
    int(pytest.ExitCode.INTERRUPTED),
)
UNCHANGED, BROKEN = 98, 99
"""How a child ends in which no living function could be changed, and one that failed by itself."""
_OWN_DEATHS = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
"""Of a mutant that uses up its time, or the stack."""

# Always the same few examples, and no search for a smaller one: that a test fails is all that is asked.
hypothesis.settings.register_profile(
    "mutation",
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    suppress_health_check=list(hypothesis.HealthCheck),
)


@dataclass(slots=True)
class Suite:
    """The core's own tests, and what each of them runs."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By the id of the test."""
    runs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """The tests that run a line, by module and line; one without a name stands for the loading of the tests."""
    failures: list[str] = field(default_factory=list)
    """Of the true code; nothing can be learned from a test that always fails."""

    def runs_when_loaded(self, mutant: Mutant) -> bool:
        """Tell whether what is loaded could depend on the changed lines."""
        return not mutant.is_inside or "" in self._tests_of(mutant)

    def nearest(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the changed lines; of what no test calls, those that run any of the module."""
        return self._quick_first(self._tests_of(mutant) - {""})

    def others(self, tests: Iterable[str]) -> list[str]:
        """Return all other tests."""
        return self._quick_first(self.seconds.keys() - set(tests))

    def _tests_of(self, mutant: Mutant) -> set[str]:
        lines = self.runs.get(mutant.module, {})
        return {test for line in (mutant.lines if mutant.is_inside else lines) for test in lines.get(str(line), ())}

    def _quick_first(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (round(self.seconds[test], 2), test))


Trial = tuple[Mutant, list[str]]


def try_all(
    trials: Iterable[Trial], suite: Suite, processes: int, begin: Callable[[Mutant, list[str]], int]
) -> Iterator[tuple[Mutant, list[str], int]]:
    """Try mutants side by side, each in a child of this process; yield each one with how its child ended."""
    waiting = iter(trials)
    running: dict[int, Trial] = {}
    while True:
        while len(running) < processes and (trial := next(waiting, None)) is not None:
            mutant, tests = trial
            child = os.fork()
            if child == 0:
                # Time that is used, not time that passes: a busy machine kills no mutant.
                longest = int(15 + 5 * sum(suite.seconds[test] for test in tests))
                resource.setrlimit(resource.RLIMIT_CPU, (longest, longest + 5))
                resource.setrlimit(resource.RLIMIT_AS, (LARGEST_BYTES, LARGEST_BYTES))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                _be_silent(1, 2)
                end = BROKEN
                try:
                    end = begin(mutant, tests)
                finally:
                    os._exit(end)
            running[child] = trial
        if not running:
            return
        child, status = os.wait()
        yield *running.pop(child), _end_of(status)


def _end_of(status: int) -> int:
    """Tell how a child ended. Whoever was killed from outside has noticed nothing."""
    if os.WIFSIGNALED(status):
        return KILLED if os.WTERMSIG(status) in _OWN_DEATHS else BROKEN
    return os.WEXITSTATUS(status)


def load_anew(suite: Suite, mutant: Mutant, tests: list[str]) -> int:
    """Load the mutant in place of the true module, in a process that has not loaded the core, and run tests."""
    assert "nebis.core" not in sys.modules  # Otherwise the true module would stay.
    sys.meta_path.insert(0, Impostor(mutant))
    return _pytest(dict.fromkeys(test.partition("::")[0] for test in tests), "-x", plugin=_Choosing(tests, suite))


class _Choosing:
    """A plugin of pytest that runs some tests, in this order, after those whose very name a mutant has changed."""

    def __init__(self, tests: Sequence[str], suite: Suite) -> None:
        self._order = {test: at for at, test in enumerate(tests)}
        self._suite = suite

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order or item.nodeid not in self._suite.seconds]
        items[:] = sorted(chosen, key=lambda item: self._order.get(item.nodeid, -1))


class Hunter:
    """A plugin of pytest that measures what the tests run, and then tries mutants in place of running the tests."""

    def __init__(self, hunt: Callable[["Hunter", Suite], None]) -> None:
        self._hunt = hunt
        self._seen = coverage.Coverage(data_file=None, include=[f"{CORE}/*"], config_file=False)
        self._suite = Suite()
        self._is_measuring = True
        self._items: dict[str, pytest.Item] = {}
        self._living: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)

    def run(self) -> None:
        """Load the core and its tests, and hunt."""
        _be_silent(1)
        self._seen.start()
        _pytest(["tests/core"], plugin=self)

    def change_living(self, mutant: Mutant, tests: list[str]) -> int:
        """Change the living functions of a module to those of the mutant, and run tests."""
        if not self._change(mutant):
            return UNCHANGED
        for test in tests:
            self._run(test)
        return SURVIVED

    def _change(self, mutant: Mutant) -> bool:
        codes, changes = list(_codes(mutant.compiled())), 0
        if len({_key(code) for code in codes}) < len(codes):
            return False  # Two on one line, which cannot be told apart.
        for code in codes:
            for function in self._living[_key(code)]:
                if function.__code__.co_freevars != code.co_freevars:
                    return False
                changes += function.__code__ != code
                function.__code__ = code
        return changes > 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        suite = self._measured()
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(CORE)):
                self._living[_key(each.__code__)].append(each)
        gc.freeze()
        self._is_measuring = False
        self._hunt(self, suite)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._suite.failures.append(f"without a mutant: {report.nodeid} cannot be loaded")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_measuring:
            known = self._suite.seconds
            known[report.nodeid] = known.get(report.nodeid, 0.0) + report.duration
            if report.failed:
                self._suite.failures.append(f"without a mutant: {report.nodeid} failed")
        elif report.failed:
            os._exit(KILLED)

    def _run(self, test: str) -> None:
        item = self._items[test]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def _measured(self) -> Suite:
        """Run all tests against the true code, in a child of this process, which itself never runs one."""
        with tempfile.TemporaryDirectory() as home:
            told = Path(home) / "suite.json"
            child = os.fork()
            if child == 0:
                self._measure()
                told.write_text(json.dumps(asdict(self._suite)))
                os._exit(0)
            self._seen.stop()
            os.waitpid(child, 0)
            if not told.exists():
                return Suite(failures=["without a mutant: the tests of the core broke down"])
            return Suite(**json.loads(told.read_text()))

    def _measure(self) -> None:
        caches = [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper) and _is_ours(each)]
        for test in self._items:
            for cache in caches:  # What one test leaves in a cache would hide lines from the next.
                cache.cache_clear()
            self._seen.switch_context(test)
            self._run(test)
            self._seen.switch_context("")
        self._seen.stop()
        data = self._seen.get_data()
        for path in data.measured_files():
            lines = data.contexts_by_lineno(path)
            self._suite.runs[Path(path).stem] = {str(line): tests for line, tests in lines.items()}


def _be_silent(*outputs: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for output in outputs:
        os.dup2(null, output)


def _pytest(paths: Iterable[str], *marks: str, plugin: object) -> int:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["NEBIS_PURE"] = "1"  # What a compiled twin does instead, no mutant could change.
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"]
    quiet = ["-q", "--tb=native", "--noconftest", "--hypothesis-profile=mutation", "--timeout=1800"]
    return int(pytest.main([*quiet, *plugins, *marks, *paths], plugins=[plugin]))


def _is_ours(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith(("nebis.", "tests."))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and all that are inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno
