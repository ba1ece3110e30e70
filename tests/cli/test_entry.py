import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from nebis.core.native import compiled

# An import hook, because uninstalling the library is not for a test to do.
WITHOUT_MODULE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from nebis.cli import main
main()
"""


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("pure", ["", "1"])
def test_version_is_that_of_the_installed_package(pure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBIS_PURE", pure)

    outcome = _run("-c", "from nebis.cli import main; main()", "version")

    assert (outcome.returncode, outcome.stderr) == (0, "")
    kind = "plain Python" if pure or compiled is None else "compiled"
    assert outcome.stdout == f"nebis {metadata.version('nebis')} ({kind})\n"


def test_the_command_is_installed_beside_the_interpreter() -> None:
    command = Path(sys.executable).parent / "nebis"

    outcome = subprocess.run([command, "version"], capture_output=True, text=True, check=False)

    assert outcome.stdout.startswith("nebis ")


def test_without_arguments_the_command_shows_its_help() -> None:
    outcome = _run("-c", "from nebis.cli import main; main()")

    assert "version" in outcome.stdout
    assert "Traceback" not in outcome.stderr


def test_without_the_extra_the_command_says_what_to_install() -> None:
    outcome = _run("-c", WITHOUT_MODULE.format(module="typer"), "version")

    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr == "The nebis command needs typer, which is not installed. Run: pip install 'nebis[cli]'\n"


def test_any_other_missing_module_is_a_fault_and_not_advice() -> None:
    outcome = _run("-c", WITHOUT_MODULE.format(module="nebis.cli.app"), "version")

    assert outcome.returncode == 1
    assert "ModuleNotFoundError" in outcome.stderr
    assert "pip install" not in outcome.stderr
