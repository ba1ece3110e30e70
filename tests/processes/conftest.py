"""Stores that outlive a process."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'nebis.db'}"
    location: str = request.getfixturevalue("postgres_url")
    return location


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """The file in which every run leaves a line."""
    path = tmp_path / "witness"
    path.touch()
    return path
