"""The code in the page about publishers runs as it stands, but for the address of the broker."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from tests.engines.nats import NatsServer
from tests.tidy.repository import ROOT

PAGE = (ROOT / "docs" / "how-to" / "publishers.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
SAID = ["booked 1200\n", ""]


@pytest.mark.parametrize(("block", "said"), list(zip(BLOCKS, SAID, strict=True)), ids=["broker", "webhook"])
def test_block_of_the_page_runs(block: str, said: str, nats_server: NatsServer, tmp_path: Path) -> None:
    async def prepare() -> None:
        client = await nats.connect(nats_server.url)
        await client.jetstream().add_stream(name="payments", subjects=["payment.created"])
        await client.close()

    asyncio.run(prepare())
    script = tmp_path / "example.py"
    script.write_text(block.replace("nats://localhost:4222", nats_server.url))

    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == (said, "")
