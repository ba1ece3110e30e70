"""A process that lets records age as the housekeeping of every Nebis process does, but begins at once."""

import json
import sys
import time

from benchmarks import ours
from benchmarks.worker import parser, places_of, say
from nebis.runtime.sweeping import Sweeper
from nebis.stores import open_blocking


def main() -> None:
    """Sweep for as long as each line says, with the rests that the housekeeping takes, and say how many aged."""
    arguments = parser().parse_args()
    backend = open_blocking(ours.postgres(places_of(arguments)))
    sessions, sweeper = backend.beat(), Sweeper()
    sweeper.stride(backend.store, sessions)
    say({"ready": True})
    for line in sys.stdin:
        deadline = time.monotonic() + json.loads(line)["seconds"]
        aged = 0
        while time.monotonic() < deadline:
            swept, rest_seconds = sweeper.stride(backend.store, sessions)
            aged += swept.aged
            left_seconds = max(0.0, deadline - time.monotonic())
            time.sleep(left_seconds if rest_seconds is None else min(rest_seconds, left_seconds))
        say({"aged": aged})
    sessions.close()


if __name__ == "__main__":
    main()
