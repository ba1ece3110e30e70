"""Plant every bug, one by one, each in a process of its own, and see whether the layers see it.

python -m tests.planted [--part 3 --turn 0]    # a third of them
python -m tests.planted --only "unique index dropped"
python -m tests.planted --table                # writes docs/explanation/planted-bugs.md
"""

import argparse
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nebis.core.transitions import transition
from nebis.testing.simulate import simulate
from nebis.testing.simulate.store import Transition
from tests.planted.bugs import BUGS, HTTP, SEEDS, STORE, Bug
from tests.planted.plugin_name import PLUGIN, VARIABLE
from tests.planted.table import PAGE, page

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 600.0
SEEN = 3
"""How a hunt ends that found its bug; no accident ends like this."""


def is_seen(bug: Bug, layer: str) -> bool:
    """Look for a bug with one layer, in this process."""
    if layer == "model":
        assert bug.mutant is not None
        _, result = bug.mutant.hunt()
        return bug.mutant.expected in result.violations
    if bug.plant is not None:
        bug.plant()
    return any(_fails(seed, bug.transition or transition) for seed in range(SEEDS))


def _fails(seed: int, decides: Transition) -> bool:
    broken = simulate(seed, transition=decides).violations
    if broken:
        print(f"seed {seed}: {broken[0]}")  # noqa: T201 - a command speaks by printing.
    return bool(broken)


def look(bug: Bug, layer: str) -> str | None:
    """Look for a bug with one layer, in a process of its own; return what to say if it is not seen."""
    suite = {"store suite": (STORE, bug.store), "http suite": (HTTP, bug.http)}.get(layer)
    if suite is None:
        command = [sys.executable, "-m", "tests.planted", "--hunt", bug.name, layer]
    else:
        (path, flag, store), chosen = suite
        plugins = ["-p", PLUGIN, "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "-x", "-q", *plugins, path, flag, f"{store} and ({chosen})"]
    environment = {**os.environ, VARIABLE: bug.name}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )
    # Of pytest, 1 says that tests ran and failed. Anything else, such as a traceback of a hunt, saw nothing.
    return (
        None
        if ended.returncode == (SEEN if suite is None else 1)
        else f"{bug.name}: the {layer} did not see it\n{ended.stdout[-800:]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--hunt", nargs=2, metavar=("BUG", "LAYER"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        (ROOT / PAGE).write_text(page())
        return 0
    if asked.hunt:
        name, layer = asked.hunt
        logging.disable(logging.CRITICAL)  # What goes wrong here is meant to.
        return SEEN if is_seen(next(bug for bug in BUGS if bug.name == name), layer) else 0
    chosen = [bug for at, bug in enumerate(BUGS) if at % asked.part == asked.turn and asked.only in (None, bug.name)]
    with ThreadPoolExecutor(2) as pool:
        looks = {bug.name: [pool.submit(look, bug, layer) for layer in bug.layers] for bug in chosen}
        unseen = {name: [told for each in looked if (told := each.result())] for name, looked in looks.items()}
    blind = [told for each in unseen.values() for told in each]
    caught = sum(not each for each in unseen.values())
    print(  # noqa: T201 - a command speaks by printing.
        json.dumps({"planted_bugs_total": len(chosen), "planted_bugs_caught": caught, "violations": blind})
    )
    return 1 if blind else 0


if __name__ == "__main__":
    sys.exit(main())
