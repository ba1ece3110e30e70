"""How the demo starts, says why it cannot, and ends; and the lines of its pages, as written."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.demo.stage import Demo, two_free_ports, wait_until
from tests.tidy.repository import ROOT

SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
README = SHELL_BLOCK.findall((ROOT / "README.md").read_text())
PAGE = SHELL_BLOCK.findall((ROOT / "docs" / "how-to" / "demo.md").read_text())
GONE_SECONDS = 10


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a clone has, with the environment that runs this test in place of one that is yet to be installed."""
    for name in ("Makefile", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    # Not a link: Python would look for its packages beside the file that the link names.
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    (tmp_path / ".venv" / ".installed-demo").touch()
    return tmp_path


def run(command: str, port: int) -> str:
    """Run lines of a page in a shell; only the ports differ from what is written."""
    text = command.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("127.0.0.1:8001", f"127.0.0.1:{port + 1}")
    assert text != command
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("to_group", [True, False], ids=["the whole group", "make alone"])
def test_make_demo_starts_from_a_clone_and_ctrl_c_ends_it(clone: Path, to_group: bool) -> None:
    with Demo(clone, command=("make", "demo")) as demo:
        assert demo.pay("inv_1").status == 201
        assert f"http://127.0.0.1:{demo.port}/" in demo.said()
        pids = [demo.pid(name) for name in ("api", "gateway", "worker")]
        began = time.monotonic()

        if to_group:
            os.killpg(demo.process.pid, signal.SIGINT)
        else:
            demo.process.send_signal(signal.SIGINT)
        demo.process.wait(GONE_SECONDS)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=GONE_SECONDS)

        assert time.monotonic() - began < GONE_SECONDS
        assert is_free(demo.port)
        assert is_free(demo.port + 1)


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        pids = [demo.pid(name) for name in ("api", "gateway", "worker")]

        demo.process.kill()

        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=GONE_SECONDS)


def test_the_lines_of_the_pages_work_as_written(tmp_path: Path) -> None:
    assert README
    assert PAGE

    with Demo(tmp_path) as demo:
        first, again = [run(README[0], demo.port) for _ in range(2)]
        charges = run(README[1], demo.port)
        killed = run(PAGE[0], demo.port)
        wait_until(lambda: len(demo.get("/v1/receipts")["receipts"]) == 2, seconds=30, what=demo.said)

    assert first.startswith("HTTP/1.1 201")
    assert "idempotency-replayed: true" in again
    assert again.splitlines()[-1] == first.splitlines()[-1]
    assert charges.count("charge_id") == 1
    assert "the server died" in killed


@pytest.mark.parametrize("port", ["abc", "0", "65535", "-1", "8000.5"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    told = refused(tmp_path, PORT=port)

    assert told.returncode == 2
    assert "PORT must be a number from 1 to 65534" in told.stderr


@pytest.mark.parametrize("place", [0, 1], ids=["the api's", "the gateway's"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, place: int) -> None:
    port = two_free_ports()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + place))
        other.listen()

        told = refused(tmp_path, PORT=str(port))

    assert told.returncode == 1
    assert f"Cannot listen on port {port + place}: Address already in use" in told.stderr
    assert "PORT=9000 make demo" in told.stderr


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("sqlite:////nowhere/at/all/shop.db", "does not exist; create it"),
        ("sqlite:////proc", "is a directory"),
        ("postgresql://nobody@127.0.0.1:1/shop", "nothing listens at 127.0.0.1:1"),
        ("mysql://localhost/shop", "must begin with sqlite:/// or postgresql://"),
    ],
)
def test_a_store_that_cannot_be_used_is_explained(tmp_path: Path, store: str, words: str) -> None:
    told = refused(tmp_path, PORT=str(two_free_ports()), NEBIS_STORE=store)

    assert told.returncode in (1, 2)
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / ".nebis").write_text("a file where the folder should be")

    told = refused(tmp_path, PORT=str(two_free_ports()))

    assert told.returncode == 1
    assert "Cannot write to" in told.stderr


def refused(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a demo that cannot start."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NEBIS")}
    return subprocess.run(
        [sys.executable, "-m", "examples.payments.demo"],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
