"""The how-to pages of Django show the examples that are run here, each in a server process of its own."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.tidy.repository import ROOT

PATIENCE_SECONDS = 20.0
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUNICORN = ["gunicorn", "-k", "gthread", "--threads", "4", "--no-control-socket", "--log-level", "critical"]
UVICORN = ["uvicorn", "--log-level", "critical"]


@contextmanager
def served(command: list[str], app: str, directory: Path) -> Iterator[tuple[str, int]]:
    """Serve while the block runs, on a socket of our own, so that no client comes before there is one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        where = ["--fd", str(number)] if command is UVICORN else ["--bind", f"fd://{number}"]
        process = subprocess.Popen(
            [sys.executable, "-m", *command, *where, app],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[number],
        )
        try:
            yield listening.getsockname()
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("name", ["django", "drf"])
def test_every_line_of_a_page_is_a_line_of_its_example(name: str) -> None:
    shown = CODE.findall((ROOT / "docs" / "how-to" / f"{name}.md").read_text())
    lines = set((ROOT / "examples" / f"{name}_payments.py").read_text().splitlines())

    assert shown
    strange = [line for block in shown for line in block.splitlines() if line.strip() and line not in lines]
    assert not strange


@pytest.mark.parametrize("name", ["django", "drf"])
def test_the_example_charges_once(name: str, tmp_path: Path) -> None:
    key = new_key()
    with served(GUNICORN, f"examples.{name}_payments:app", tmp_path) as address:
        client = Client(address, "secret-1")

        first, again = [client.post("/payments", {"amount": 5}, key=key) for _ in range(2)]
        declined = [client.post("/payments", {"amount": 5000}, key=f"{key}-2") for _ in range(2)]
        other = client.post("/payments", {"amount": 6}, key=key)
        neighbour = Client(address, "secret-2").post("/payments", {"amount": 5}, key=key)
        nobody = Client(address, None).post("/payments", {"amount": 5}, key=key)
        missing = client.post("/payments", {"amount": 5})
        invalid = client.post("/payments", {"amount": "many"}, key=f"{key}-3")
        orders = [client.post("/orders", {"amount": 5}, key=key) for _ in range(2)]
        unknown = client.get(f"/operations/{key}")

    assert (first.status, first.is_replay) == (201, False)
    assert (again.status, again.body, again.is_replay) == (201, first.body, True)
    assert [(reply.status, reply.is_replay) for reply in declined] == [(402, False), (402, True)]
    assert (other.status, other.code) == (422, "key-reused")
    assert (neighbour.status, neighbour.body != first.body) == (201, True)
    assert nobody.status == 401
    assert (missing.status, missing.code) == (400, "key-missing")
    assert invalid.status == 400
    assert [(reply.status, reply.is_replay) for reply in orders] == [(201, False), (201, True)]
    assert orders[0].body == orders[1].body
    assert (unknown.status, unknown.code) == (404, "operation-unknown")


def test_refunds_and_async_transfers_of_the_django_example_happen_once(tmp_path: Path) -> None:
    key = new_key()
    with served(UVICORN, "examples.django_payments:asgi", tmp_path) as address:
        client = Client(address, "secret-1")

        transfers = [client.post("/transfers", {"amount": 5}, key=key) for _ in range(2)]
        refunds = [client.post("/refunds", {"amount": 5}, key=key) for _ in range(2)]

    for replies in (transfers, refunds):
        assert [(reply.status, reply.is_replay) for reply in replies] == [(201, False), (201, True)]
        assert replies[0].body == replies[1].body
