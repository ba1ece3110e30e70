"""`nebis worker`: recovery as a process of its own, for the operations of an application."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from datetime import timedelta
from typing import Annotated

import typer

from nebis.aio import AsyncNebis
from nebis.cli import output
from nebis.cli.relay import relaying, relaying_async
from nebis.cli.store import JsonOption
from nebis.cli.target import attribute, imported
from nebis.errors import ConfigError
from nebis.recovery import Report
from nebis.sync import Nebis
from nebis.worker import AsyncWorker, Worker
from nebis.worker.pace import Told

AppOption = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        show_default=False,
        help="Where the application keeps its Nebis: package.module:nebis. The module is imported from here.",
    ),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.05, metavar="SECONDS", help="How long to wait between two passes.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Make one pass and end.")]


def worker(
    *, app: AppOption, interval: IntervalOption = 5.0, once: OnceOption = False, json: JsonOption = False
) -> None:
    """Finish what nobody owns any more, settle what is in doubt, and publish what was staged where there is a relay.

    SIGTERM ends it once the current record is done.
    """
    nebis = load(app)
    names = ", ".join(sorted(nebis.operations)) or "no operation"
    output.complain(f"worker for {names}")
    pace = timedelta(seconds=interval)
    told = _telling(is_json=json, is_all=once)
    if isinstance(nebis, AsyncNebis):
        asyncio.run(_run_async(nebis, AsyncWorker(nebis, interval=pace, told=told), once=once))
    else:
        _run_blocking(nebis, Worker(nebis, interval=pace, told=told), once=once)


def load(app: str) -> Nebis | AsyncNebis:
    """Import the application's `Nebis`; raise `ConfigError` if it is not there."""
    module_name, _, name = app.partition(":")
    if not module_name or not name:
        raise ConfigError([f"--app is package.module:name, not {app!r}"])
    found = attribute(imported(module_name), name)
    if not isinstance(found, Nebis | AsyncNebis):
        raise ConfigError([f"{app} is no Nebis; name the object that the operations are declared on"])
    return found


def _telling(*, is_json: bool, is_all: bool) -> Told:
    """Return what says what a pass did: every one for programs, otherwise those that did something."""

    def told(report: Report) -> None:
        if is_json:
            output.say(json.dumps(report.as_json()))
        elif is_all or not report.is_idle:
            output.say(str(report))

    return told


def _run_blocking(nebis: Nebis, worker: Worker, *, once: bool) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with nebis, relaying(nebis.relays, stop, once=once):
        if once:
            worker.run_once(lambda: not stop.is_set())
        else:
            worker.run(stop)


async def _run_async(nebis: AsyncNebis, worker: AsyncWorker, *, once: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with nebis, relaying_async(nebis.relays, stop, once=once):
        if once:
            await worker.run_once(lambda: not stop.is_set())
        else:
            await worker.run(stop)
