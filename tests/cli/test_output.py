"""What every command has in common: exit statuses, one line for an error, and who is allowed colour."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import nebis

DATABASE = "sqlite:///{}/nebis.db"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["migrate", "frobnicate"], "No such command 'frobnicate'"),
        (["doctor", "--frobnicate"], "--frobnicate"),
        (["migrate", "apply", "--wait", "soon"], "--wait"),
        (["doctor"], "pass --store URL or set NEBIS_STORE"),
        (["migrate", "verify"], "pass --store URL or set NEBIS_STORE"),
        (["doctor", "--store", "mysql://host/database"], "begin with sqlite:/// or postgresql://"),
        (["doctor", "--store", "sqlite://nebis.db"], "sqlite:///relative/path.db"),
        (["migrate", "verify", "--store", "memory://"], "has no schema"),
        (["migrate", "print", "--store", "sqlite:///a.db", "--schema", "shop"], "--schema is for PostgreSQL"),
        (["migrate", "print", "--store", "postgresql://h/d", "--schema", "a b"], "is not a plain name"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(arguments: list[str], words: str) -> None:
    outcome = nebis(*arguments)

    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("nebis: ")
    assert outcome.stderr.count("\n") == 1
    assert words in outcome.stderr


def test_the_option_wins_over_the_variable(tmp_path: Path) -> None:
    nebis("migrate", "apply", store=DATABASE.format(tmp_path))

    outcome = nebis("migrate", "verify", "--store", DATABASE.format(tmp_path), store="sqlite:////no/such/folder/x.db")

    assert outcome.status == 0


@pytest.mark.parametrize("password", ["hunter2secret", "hunter2/secret", "hunter2?secret", "hunter2#secret"])
@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["migrate", "verify"], ["migrate", "apply"]])
def test_no_part_of_a_password_is_printed(password: str, arguments: list[str]) -> None:
    """SEC26: not even of one that was not percent-encoded, so that it ends up in other parts of the URL."""
    outcome = nebis(*arguments, store=f"postgresql://shop:{password}@127.0.0.1:1/shop")

    assert outcome.status in {1, 2}
    assert "hunter2" not in outcome.stdout + outcome.stderr
    assert "secret" not in outcome.stdout + outcome.stderr


def test_a_fault_of_the_command_itself_is_one_line_without_its_text() -> None:
    script = (
        "import nebis.cli.doctor as doctor\n"
        "def broken(url, schema): raise RuntimeError('postgresql://shop:hunter2@host')\n"
        "doctor.locate = broken\n"
        "from nebis.cli import main\n"
        "main()\n"
    )
    outcome = subprocess.run([sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False)

    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("nebis: nebis itself failed (RuntimeError at ")
    assert outcome.stderr.count("\n") == 1
    assert "hunter2" not in outcome.stderr


def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    """More is printed than a pipe holds, so that the command must notice."""
    command = f"{sys.executable} -c 'from nebis.cli import main; main()' migrate print --store sqlite:///x.db"
    many = f"({command}; echo status=$? >&2) | true"

    outcome = subprocess.run(["sh", "-c", many], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert outcome.stderr == "status=0\n"


def test_a_migration_goes_on_when_nobody_listens(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from nebis.cli import main; main()", "migrate", "apply"]

    outcome = subprocess.run(
        command,
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "NEBIS_STORE": DATABASE.format(tmp_path)},
        check=False,
    )
    os.close(writer)

    assert (outcome.returncode, outcome.stderr) == (0, b"")
    assert nebis("migrate", "verify", store=DATABASE.format(tmp_path)).status == 0


def _on_a_terminal(*arguments: str, **environment: str) -> str:
    """Run a command whose stdout is a terminal and return all that it wrote there."""
    inherited = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from nebis.cli import main; main()", *arguments],
        stdout=end,
        env={**inherited, "TERM": "xterm-256color", "COLUMNS": "60", **environment},
    )
    os.close(end)
    written = b""
    try:
        while piece := os.read(terminal, 4096):
            written += piece
    except OSError:  # Linux says so when the other end is closed.
        pass
    process.wait(timeout=60)
    os.close(terminal)
    return written.decode()


def test_colour_is_for_terminals_that_want_it(tmp_path: Path) -> None:
    store = DATABASE.format(tmp_path)
    nebis("migrate", "apply", store=store)

    colourful = _on_a_terminal("doctor", "--store", store)
    plain = _on_a_terminal("doctor", "--store", store, NO_COLOR="1")
    piped = nebis("doctor", store=store).stdout

    assert "\x1b[32mok" in colourful
    assert "\x1b[32m" not in plain
    assert "\x1b" not in piped


def test_a_terminal_gets_lines_that_fit_and_a_pipe_one_line_per_finding(tmp_path: Path) -> None:
    store = DATABASE.format(tmp_path)
    nebis("migrate", "apply", store=store)

    watched = _on_a_terminal("doctor", "--store", store, NO_COLOR="1")
    piped = nebis("doctor", store=store).stdout
    findings = json.loads(nebis("doctor", "--json", store=store).stdout)["findings"]

    # The path may be a single word that is longer than the line.
    assert "schema" in watched
    readable = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in watched.splitlines()]
    assert max(len(line) for line in readable if str(tmp_path) not in line) <= 60
    assert len(piped.splitlines()) == len(findings)
