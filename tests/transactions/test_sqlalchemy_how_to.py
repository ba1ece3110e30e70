"""The code of the page about SQLAlchemy runs as it stands."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sqlalchemy.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)

    # As a module of its own: the annotations of its handler are looked up there.
    namespace = {"__name__": "shop"}
    exec(compile(block, PAGE.name, "exec"), namespace)

    assert namespace["first"] == namespace["again"]
