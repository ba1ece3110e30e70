"""Which code each layer is about: what it proves, and what it proves it with. Evidence lasts as long as that code."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "0" * 40


@dataclass(frozen=True, slots=True)
class Ground:
    """Files and folders, without those that are spared."""

    paths: tuple[str, ...]
    """One that ends with `/*.py` means the files of a folder, without those below."""
    spared: tuple[str, ...] = ()

    def commit(self, root: Path) -> str:
        """Return the newest commit that touched any of it; later ones change nothing."""
        return _git(root, "log", "-1", "--format=%H", "--", *self._marks()) or UNKNOWN

    def commit_of_source(self, root: Path) -> str:
        """Return the same for what is shipped, without the tests."""
        return Ground(tuple(path for path in self.paths if path.startswith("src/")), self.spared).commit(root)

    def is_changed(self, root: Path) -> bool:
        """Tell whether it is not as in any commit."""
        return bool(_git(root, "status", "--porcelain", "--", *self._marks()))

    def covers(self, file: str) -> bool:
        """Tell whether a file is among it."""
        return _is_under(file, self.paths) and not _is_under(file, self.spared)

    def _marks(self) -> list[str]:
        return [*(f":(glob){path}" for path in self.paths), *(f":(exclude){path}" for path in self.spared)]


def newest(root: Path, commits: Iterable[str]) -> str:
    """Return the commit that comes after all the others."""
    known = sorted({commit for commit in commits if commit != UNKNOWN})
    return (_git(root, "rev-list", "-1", "--topo-order", *known) if known else "") or UNKNOWN


def _is_under(file: str, paths: Iterable[str]) -> bool:
    folder = f"{file.rpartition('/')[0]}/*.py"
    return any(path in (file, folder) or file.startswith(f"{path}/") for path in paths)


def _git(root: Path, *command: str) -> str:
    asked = subprocess.run(  # noqa: S603 - our own words.
        ["git", *command],  # noqa: S607 - wherever git is.
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()


_ALL = ("src/nebis", "src/native")
_CLI, _WEB = "src/nebis/cli", ("src/nebis/http", "src/nebis/integrations")
_JUDGES = ("src/nebis/testing/bank", "src/nebis/testing/history", "src/nebis/testing/quiet.py")
_OTHER_PROOFS = tuple(
    f"src/nebis/testing/{name}"
    for name in (
        "conformance",
        "http_conformance",
        "modelcheck",
        "prove",
        "pytest_plugin.py",
        "repetition.py",
        "simulate",
        "torture",
    )
)
_SERVER = ("tests/engines/binaries.py", "tests/engines/ports.py", "tests/engines/postgres.py")
_ENGINE = (_CLI, *_WEB, "src/nebis/messaging", *_OTHER_PROOFS)
"""What the layers spare that run the whole engine on real stores: it has no part in what they do."""

GROUNDS = {
    "model check": Ground(("src/nebis/core", "src/nebis/testing/modelcheck")),
    "simulation": Ground(
        (
            "src/nebis/*.py",
            "src/nebis/consuming",
            "src/nebis/core",
            "src/native",
            "src/nebis/flows",
            "src/nebis/http",
            "src/nebis/integrations/*.py",
            "src/nebis/messaging",
            "src/nebis/ports",
            "src/nebis/runtime",
            "src/nebis/stores/*.py",
            "src/nebis/worker",
            "src/nebis/testing/quiet.py",
            "src/nebis/testing/simulate",
        )
    ),
    "kill matrix": Ground((*_ALL, "tests/matrix", *_SERVER), _ENGINE),
    "protocol cuts": Ground(
        (
            *_ALL,
            "tests/testing/prove/cuts.py",
            "tests/testing/prove/cutting_proxy.py",
            "tests/transactions/scenes.py",
            "tests/transactions/shops.py",
            "tests/stores/postgres_ways.py",
            "tests/engine/faces.py",
            *_SERVER,
        ),
        _ENGINE,
    ),
    "soak": Ground((*_ALL, "tests/testing/prove/soak.py", "tests/matrix", *_SERVER), _ENGINE),
    "failover": Ground(
        (
            *_ALL,
            "tests/failover",
            "tests/stores/postgres_ways.py",
            "tests/engine/faces.py",
            "tests/engines/standby.py",
            *_SERVER,
        ),
        _ENGINE,
    ),
    "message storm": Ground(
        (
            *_ALL,
            "tests/messaging/storm.py",
            "tests/messaging/test_storm.py",
            "tests/engines/daemon.py",
            "tests/engines/nats.py",
            *_SERVER,
        ),
        (_CLI, *_WEB, *_JUDGES, *_OTHER_PROOFS),
    ),
    "planted bugs": Ground(
        (*_ALL, "tests/planted", "tests/stores", "tests/integrations"),
        (_CLI, "src/nebis/testing/prove", "src/nebis/testing/torture", "src/nebis/testing/pytest_plugin.py"),
    ),
    "torture kit": Ground(
        (
            *_ALL,
            "tests/testing/torture",
            "examples/payments",
            "tests/cli/command.py",
            "tests/demo/stage.py",
            "tests/engines/daemon.py",
            "tests/engines/ports.py",
            "tests/engines/valkey.py",
            "tests/integrations/servers.py",
            "tests/tidy/repository.py",
        ),
        ("src/nebis/testing/prove", "src/nebis/testing/modelcheck", "src/nebis/testing/simulate"),
    ),
    "mutation": Ground(
        (
            "src/nebis/core",
            "src/nebis/ports",
            "src/nebis/delivery.py",
            "src/nebis/errors.py",
            "src/nebis/flow.py",
            "src/nebis/refusals.py",
            "src/nebis/testing/conformance",
            "tests/core",
            "tests/planted",
        ),
        tuple(
            f"tests/planted/{name}.py"
            for name in ("__main__", "bugs", "plugin", "plugin_name", "sowing", "table", "test_planted")
        ),
    ),
}
"""A test compares these with what the layers really import."""
