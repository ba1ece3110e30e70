"""Processes with a wall clock of their own, which libfaketime moves from their start on; the monotonic one is true."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

_OF_THE_SYSTEM = Path("/usr/lib")
HOW_TO_GET_IT = "libfaketime is not here (pip install libfaketime, or Debian: apt install libfaketime)"


class Clock(StrEnum):
    """How far a clock is off, as libfaketime reads it."""

    RIGHT = "+0h"
    AHEAD = "+3h"
    BEHIND = "-3h"
    LATER = "+6h"
    """Not a wrong clock but a later day, beyond every lease that was taken on a clock three hours ahead."""


def find_library() -> Path | None:
    """Return the library, from its wheel or from the system."""
    wheel = importlib.util.find_spec("libfaketime")
    if wheel is not None and wheel.origin is not None:
        built = Path(wheel.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
        if built.exists():
            return built
    return next(_OF_THE_SYSTEM.glob("*/faketime/libfaketime.so.1"), None)


@contextmanager
def moved(clock: Clock) -> Iterator[None]:
    """Give this clock to every process that is started within the block."""
    library = find_library()
    assert library is not None
    before = dict(os.environ)
    if clock is not Clock.RIGHT:
        os.environ.update(_environment(library, clock))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _environment(library: Path, clock: Clock) -> Mapping[str, str]:
    return {"LD_PRELOAD": str(library), "FAKETIME": str(clock), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
