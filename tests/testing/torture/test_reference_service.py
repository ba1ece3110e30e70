"""The reference service under the kit, with the operation file that the page shows, on both stores."""

from pathlib import Path

import pytest

from tests.cli.command import nebis
from tests.demo.stage import Demo
from tests.tidy.repository import ROOT

SAMPLE = ROOT / "examples" / "payments" / "torture.toml"
SMALLER = "\n[limits]\ntwins = 10\nstorm = 20\n"
"""Than the page's numbers, for the time that they take."""
NEEDS_MORE = {
    "semantics.passing-failure",
    "semantics.late-failure",
    "semantics.other-operation",
    "network.hang-up-slow",
    "input.oversize",
    "security.cookies",
}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_reference_service_passes(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Charges are counted in the books of the gateway, which shares nothing with the service."""
    url = None if store == "sqlite" else request.getfixturevalue("postgres_url")
    with Demo(tmp_path, store=url) as demo:
        op = tmp_path / "op.toml"
        op.write_text(SAMPLE.read_text().replace("127.0.0.1:8001", f"127.0.0.1:{demo.port + 1}") + SMALLER)
        outcome = nebis("torture", f"http://127.0.0.1:{demo.port}", "--op", str(op))

    lines = outcome.stdout.splitlines()
    assert not [line for line in lines if line.startswith("FAIL")], outcome.stdout
    assert {line.split()[1] for line in lines if line.startswith("n/a")} == NEEDS_MORE
    assert outcome.status == 0
