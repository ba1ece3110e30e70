"""A process that lets records age at the pace of the housekeeping that every Nebis process has."""

import json
import sys
import time

from benchmarks import ours
from benchmarks.worker import parser, places_of, say
from nebis.runtime.housekeeping import BUSY_SECONDS, sweep_once
from nebis.stores import open_blocking


def main() -> None:
    """Sweep for as long as each line says, and say how many records were due in each sweep's largest part."""
    arguments = parser().parse_args()
    backend = open_blocking(ours.postgres(places_of(arguments)))
    sessions = backend.beat()
    say({"ready": True})
    for line in sys.stdin:
        deadline = time.monotonic() + json.loads(line)["seconds"]
        swept = 0
        while time.monotonic() < deadline:
            swept += sweep_once(backend.store, sessions)
            time.sleep(BUSY_SECONDS)
        say({"swept": swept})
    sessions.close()


if __name__ == "__main__":
    main()
