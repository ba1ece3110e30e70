"""The code in the pages about natural keys and conditional updates runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
SAID = {
    "natural-keys-0": "",
    "natural-keys-1": "natural-key-reused\n",
    "conditional-updates-0": "precondition-failed\n",
}
BLOCKS = {
    f"{name}-{number}": block
    for name in ("natural-keys", "conditional-updates")
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (PAGES / f"{name}.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    )
}


def test_every_block_has_its_line_here() -> None:
    assert BLOCKS.keys() == SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_block_of_a_page_runs(name: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(BLOCKS[name])

    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == SAID[name]
