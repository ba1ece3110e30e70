"""`nebis relay`: publishes what transactions staged, as a process of its own."""

from __future__ import annotations

import asyncio
import json as json_module
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from nebis.aio import AsyncNebis
from nebis.cli import output
from nebis.cli.store import JsonOption
from nebis.cli.target import attribute, imported
from nebis.errors import ConfigError
from nebis.flows.relay import Relayed
from nebis.messaging.relay import AsyncRelay, Relay, Told
from nebis.sync import Nebis

AppOption = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        show_default=False,
        help="Where the application keeps its relay, or the Nebis of its relays: package.module:relay.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Publish what is due and end.")]


def relay(*, app: AppOption, once: OnceOption = False, json: JsonOption = False) -> None:
    """Publish what was staged, until SIGTERM; the batch under way is finished first. Any number may run."""
    relays = load(app)
    for each in relays:
        each.told = _telling(is_json=json)
    output.complain(f"{len(relays)} relay{'' if len(relays) == 1 else 's'}")
    blocking = [each for each in relays if isinstance(each, Relay)]
    if blocking:
        _run_blocking(blocking, once=once)
    else:
        asyncio.run(_run_async([each for each in relays if isinstance(each, AsyncRelay)], once=once))


def load(app: str) -> Sequence[Relay | AsyncRelay]:
    """Import the application's relays; raise `ConfigError` if there is none."""
    module_name, _, name = app.partition(":")
    if not module_name or not name:
        raise ConfigError([f"--app is package.module:name, not {app!r}"])
    found = attribute(imported(module_name), name)
    if isinstance(found, Relay | AsyncRelay):
        return [found]
    if not isinstance(found, Nebis | AsyncNebis):
        raise ConfigError([f"{app} is neither a relay nor a Nebis; name one of them"])
    if not found.relays:
        raise ConfigError([f"{app} has no relay; make one in that module: Relay(nebis, publishers)"])
    return found.relays


def _telling(*, is_json: bool) -> Told:
    """Return what says what a round did, unless there was nothing to do."""

    def told(relayed: Relayed) -> None:
        if relayed.taken:
            output.say(json_module.dumps(asdict(relayed)) if is_json else str(relayed))

    return told


def _run_blocking(relays: Sequence[Relay], *, once: bool) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with relays[0].nebis, relaying(relays, stop, once=once):
        pass


@contextmanager
def relaying(relays: Sequence[Relay], stop: threading.Event, *, once: bool) -> Iterator[None]:
    """Run every relay on a thread of its own, until told to stop or, once, until nothing is due."""
    work = _drain if once else Relay.run
    with ThreadPoolExecutor(max(1, len(relays)), thread_name_prefix="nebis-relay") as threads:
        running = [threads.submit(work, each, stop) for each in relays]
        try:
            yield
        except BaseException:
            stop.set()
            raise
        for each in running:
            each.result()


def _drain(relay: Relay, stop: threading.Event) -> None:
    try:
        while not stop.is_set() and relay.run_once().taken:
            pass
    finally:
        relay.close()


async def _run_async(relays: Sequence[AsyncRelay], *, once: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with relays[0].nebis, relaying_async(relays, stop, once=once):
        pass


@asynccontextmanager
async def relaying_async(relays: Sequence[AsyncRelay], stop: asyncio.Event, *, once: bool) -> AsyncIterator[None]:
    """Run every relay as a task of its own, until told to stop or, once, until nothing is due."""
    work: Any = _drain_async if once else AsyncRelay.run
    async with asyncio.TaskGroup() as tasks:
        for each in relays:
            tasks.create_task(work(each, stop))
        yield


async def _drain_async(relay: AsyncRelay, stop: asyncio.Event) -> None:
    try:
        while not stop.is_set() and (await relay.run_once()).taken:
            pass
    finally:
        await relay.close()
