"""Records led into every situation on a real database, for commands to look at."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from nebis.core.record import Record
from nebis.stores import open_blocking
from nebis.testing.conformance import Connection, connection_of
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.twin import Twin

SNAPSHOTS = Path(__file__).parent / "snapshots"


class Scene:
    """A database, and keys on it whose clock the test moves."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self.connection = connection
        self.store = connection.store
        self.twin = Twin(connection)

    def stage(self, key: str, *, now: int | None = None) -> Stage:
        """Put a key on it, at a fixed instant, or at the one given."""
        stage = Stage(self.twin, key=key)
        if now is not None:
            stage.now = now
        return stage

    def clock(self) -> int:
        """Read the store's own clock, which commands go by."""
        return self.connection.run(self.store.clock())

    def found(self, record: Record) -> Record | None:
        """Read a record as it stands."""
        return self.connection.run(self.store.find_by_id(record.record_id))

    def answers(self, record: Record) -> list[str]:
        """Return what the audit says that people were answered."""
        return [line.answer for line in self.connection.run(self.store.audits_of(record.record_id))]


@contextmanager
def opened(url: str) -> Iterator[Scene]:
    """Open a database with its schema in place."""
    connection = connection_of(open_blocking(url))
    connection.run(connection.store.migrate())
    yield Scene(url, connection)
    connection.close()


def on_each_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Open an empty database of the kind that the fixture's parameter names."""
    url = f"sqlite:///{tmp_path}/nebis.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with opened(url) as scene:
        yield scene


def drawn_in_colour(*pictures: tuple[RenderableType, bool], width: int = 100) -> str:
    """Return what a terminal of a fixed width would be sent; what must stay whole is marked so."""
    console = Console(width=width, force_terminal=True, color_system="standard", highlight=False, legacy_windows=False)
    with console.capture() as capture:
        for picture, is_whole in pictures:
            console.print(picture, soft_wrap=is_whole)
    return capture.get()


def check_snapshot(name: str, text: str) -> None:
    """Compare with the file of that name; with NEBIS_UPDATE_SNAPSHOTS=1 write it, to be looked at and committed."""
    # Databases draw fences in steps of their own, so that no two of them give the same ones.
    settled = re.sub(r"(fence(?: seen)? )\d+", r"\1N", text)
    settled = "".join(f"{line.rstrip()}\n" for line in settled.splitlines())
    path = SNAPSHOTS / name
    if os.environ.get("NEBIS_UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settled)
    assert settled == path.read_text()
