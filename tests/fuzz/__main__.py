"""Look for inputs that reach code which no kept input reaches, and keep them.

python -m tests.fuzz TARGET [--seconds 60 --seed 1]
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.fuzz.keeping import keep, kept
from tests.fuzz.targets import TARGETS

LONGEST = 400
ALPHABET = b"\"'\\{}[]():;,.=_-+*/ \t\r\n\0\x7f\x80\xff09afAFeExXnN"

Step = tuple[str, int, int]


def steps_of(target: Callable[[bytes], None], data: bytes) -> set[Step]:
    """Run a target, and return every step from one line of Nebis to the next."""
    seen: set[Step] = set()
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if "/nebis/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return trace

    sys.settrace(trace)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return seen


def changed(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return the input with a few small changes, or crossed with another one."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(made))
        match chance.randrange(5):
            case 0:
                made[at:at] = bytes([chance.choice(ALPHABET)])
            case 1:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                del made[at : at + chance.randint(1, 8)]
            case 3:
                other = chance.choice(others)
                start = chance.randint(0, len(other))
                made[at:at] = other[start : start + chance.randint(1, 40)]
            case _:
                made[at:at] = made[at : at + chance.randint(1, 8)] * chance.randint(1, 3)
    return bytes(made[:LONGEST])


def main(name: str, seconds: float, seed: int) -> int:
    """Search for that long; return how many inputs were kept."""
    target, inputs, chance = TARGETS[name], kept(name), random.Random(seed)
    reached = set().union(*(steps_of(target, data) for data in inputs))
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = changed(chance, chance.choice([*inputs, *found]), inputs)
        try:
            steps = steps_of(target, data)
        except BaseException:
            sys.stdout.write(f"{name} fails with {data!r}\n")
            raise
        if not steps <= reached:
            reached |= steps
            found.append(data)
    keep(name, found)
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sys.stdout.write(f"{main(asked.target, asked.seconds, asked.seed)} new inputs for {asked.target}\n")
