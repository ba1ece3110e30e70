"""The code in the pages about effects, undo, the worker, messages, tokens, deadlines and limits runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCKS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in ("effects", "undo", "worker", "outbox", "consumers", "notifications", "tokens", "deadlines", "velocity")
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (PAGES / f"{name}.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_of_a_page_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block)

    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
