"""How many instructions of the processor a call takes, which hardly depends on the machine or on how busy it is.

    .venv-bench/bin/python -m benchmarks.instructions nebis@postgres nebis@sqlite --case replay
    .venv-bench/bin/python -m benchmarks.instructions bare@none nebis@sqlite --http

Times move by half from run to run, these by a hundredth: they tell what a small change did. It needs valgrind, and a
minute for each. What the kernel and the database's own processes do is not counted.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import uuid
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contender import AsyncCall, Contender, Places
from benchmarks.contenders import contender_of
from benchmarks.rounds import stage
from benchmarks.web import in_process
from benchmarks.work import Work
from benchmarks.worker import places_of, run_loop

CALLERS = 64
FEW, MANY = 5, 25
"""Rounds of two runs: what they have in common, such as starting the interpreter, is not counted."""
_COUNTED = re.compile(r"Collected : (\d+)")


async def run(contender: Contender, places: Places, *, case: str, rounds: int, http: bool) -> int:
    """Let each caller call so often, after a first time that opens connections; return how often the work was run."""
    work = Work()
    opens = in_process(contender.app) if http and contender.app is not None else contender.open
    assert opens is not None, f"{contender.name} has no such case"
    async with opens(places, work) as opened:
        call: AsyncCall = opened  # type: ignore[assignment]  # Threads are not counted here.
        known = [str(uuid.uuid4()) for _ in range(CALLERS)]
        for _ in range(2):
            await asyncio.gather(*map(call, known))

        async def caller(key: str) -> None:
            for _ in range(rounds):
                await call(key if case == "replay" else str(uuid.uuid4()))

        await asyncio.gather(*map(caller, known))
    return work.executions


def counted(name: str, places: Places, options: Namespace) -> int:
    """Return the instructions of one call."""
    few, many = (_counted(name, places, options, rounds) for rounds in (FEW, MANY))
    return (many - few) // ((MANY - FEW) * CALLERS)


def _counted(name: str, places: Places, options: Namespace, rounds: int) -> int:
    with TemporaryDirectory() as scratch:
        command = [
            *(
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={scratch}/out",
                sys.executable,
                "-m",
                __spec__.name,
            ),
            *(name, "--rounds", str(rounds), "--case", options.case, *(["--http"] if options.http else [])),
            *("--postgres", places.postgres_url, "--directory", str(places.directory)),
        ]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
    found = _COUNTED.search(ran.stderr)
    if ran.returncode or found is None:
        raise SystemExit(f"{name} did not run to its end:\n{ran.stderr[-2000:]}")
    return int(found[1])


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", help="contenders, as nebis@postgres")
    parser.add_argument("--case", choices=("cycle", "replay"), default="cycle")
    parser.add_argument("--http", action="store_true", help="through an ASGI application, without any network")
    parser.add_argument("--rounds", type=int, help="run so often instead, which is what is counted")
    parser.add_argument("--postgres", default="")
    parser.add_argument("--redis", default="")
    parser.add_argument("--directory", default="")
    options = parser.parse_args()
    contenders = [contender_of(name) for name in options.names]
    if options.rounds is not None:
        run_loop(_run_each(contenders, options))
        return
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind counts the instructions and is not there; install the package of that name.")
    with stage([contender.store for contender in contenders], Path("/dev/null")) as servers:
        for contender in contenders:
            instructions = counted(contender.name, servers.places(), options)
            print(f"{contender.name:30} {options.case:8} {instructions:>12,}", flush=True)


async def _run_each(contenders: list[Contender], options: Namespace) -> None:
    for contender in contenders:
        await run(contender, places_of(options), case=options.case, rounds=options.rounds, http=options.http)


if __name__ == "__main__":
    main()
