"""Each how-to page shows the example that is run here."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from nebis import Nebis
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations.servers import uvicorn_serving
from tests.integrations.wsgi_servers import waitress_serving
from tests.tidy.repository import ROOT

SERVERS = {
    "asgi": uvicorn_serving,
    "starlette": uvicorn_serving,
    "fastapi": uvicorn_serving,
    "litestar": uvicorn_serving,
    "wsgi": waitress_serving,
    "flask": waitress_serving,
}
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def example(name: str) -> Any:
    path = ROOT / "examples" / f"{name}_payments.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Where frameworks look for the names in annotations.
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SERVERS)
def test_every_line_of_a_page_is_a_line_of_its_example(name: str) -> None:
    shown = CODE.findall((ROOT / "docs" / "how-to" / f"{name}.md").read_text())
    lines = set((ROOT / "examples" / f"{name}_payments.py").read_text().splitlines())

    assert shown
    strange = [line for block in shown for line in block.splitlines() if line.strip() and line not in lines]
    assert not strange


@pytest.mark.parametrize("name", SERVERS)
def test_the_example_charges_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key, shop = new_key(), example(name)
    with SERVERS[name](shop.app) as address:
        client = Client(address, "secret-1")

        first, again = [client.post("/payments", {"amount": 5}, key=key) for _ in range(2)]
        declined = [client.post("/payments", {"amount": 5000}, key=f"{key}-2") for _ in range(2)]
        other = client.post("/payments", {"amount": 6}, key=key)
        neighbour = Client(address, "secret-2").post("/payments", {"amount": 5}, key=key)
        nobody = Client(address, None).post("/payments", {"amount": 5}, key=key)
        missing = client.post("/payments", {"amount": 5})
    if isinstance(shop.nebis, Nebis):  # Nothing in WSGI tells an application that it is over.
        shop.nebis.close()

    assert (first.status, first.is_replay) == (201, False)
    assert (again.status, again.body, again.is_replay) == (201, first.body, True)
    assert [(reply.status, reply.is_replay) for reply in declined] == [(402, False), (402, True)]
    assert (other.status, other.code) == (422, "key-reused")
    assert neighbour.status == 201
    assert neighbour.body != first.body
    assert nobody.status == 401
    assert (missing.status, missing.code) == (400, "key-missing")


def test_every_route_of_the_flask_example_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T1."""
    monkeypatch.chdir(tmp_path)
    key, shop = new_key(), example("flask")
    with shop.nebis, waitress_serving(shop.app) as address:
        client = Client(address, "secret-1")

        replies = [client.post(path, {"amount": 5}, key=key) for path in ("/orders", "/refunds") for _ in range(2)]
        unknown = client.get(f"/operations/{new_key()}")

    assert [reply.status for reply in replies] == [201] * 4
    assert [reply.is_replay for reply in replies] == [False, True, False, True]
    assert len({reply.body for reply in replies}) == 2
    assert (unknown.status, unknown.code) == (404, "operation-unknown")


def test_rows_and_answer_of_the_fastapi_example_are_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T1."""
    monkeypatch.chdir(tmp_path)
    key = new_key()
    with uvicorn_serving(example("fastapi").app) as address:
        client = Client(address, "secret-1")

        first, again = [client.post("/orders", {"amount": 5}, key=key) for _ in range(2)]
        refunds = [client.post("/refunds", {"amount": 5}, key=key) for _ in range(2)]
        docs = client.get("/openapi.json").json()

    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert [reply.status for reply in refunds] == [201, 201]
    assert [reply.is_replay for reply in refunds] == [False, True]
    assert refunds[0].body == refunds[1].body
    header = [one for one in docs["paths"]["/orders"]["post"]["parameters"] if one["name"] == "Idempotency-Key"]
    assert header[0]["required"] is True
    assert "attempt" not in str(docs["paths"]["/orders"])
