"""An application with a relay, whose broker is a file; it kills or stops itself if its environment says so."""

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from nebis import AsyncNebis, Nebis
from nebis.messaging import AsyncRelay, Confirmed, Message, PublishResult, Relay, RelayPolicy


class FileBroker:
    """Writes the id of each message to a file, one line each, in the order of arrival."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrived = 0
        self._fatal = int(os.environ.get("FATAL_MESSAGE", "0"))
        self._signal = signal.Signals[os.environ.get("FATAL_SIGNAL", "SIGKILL")]

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        for message in messages:
            with self._path.open("a") as file:
                file.write(f"{message.id}\n")
            self._arrived += 1
            if self._arrived == self._fatal:
                if self._signal is signal.SIGSTOP:
                    # Who is frozen while its first write is still being checkpointed holds the whole of a SQLite file.
                    await asyncio.sleep(1.5)
                # To this thread: a signal to the process may reach another first, and this one would go on until then.
                signal.pthread_kill(threading.get_ident(), self._signal)
        return [Confirmed()] * len(messages)

    async def reset(self) -> None:
        """Nothing."""

    async def aclose(self) -> None:
        """Nothing."""


broker = FileBroker(Path(os.environ["LEDGER"]))
lease = timedelta(seconds=float(os.environ.get("LEASE_SECONDS", "1")))
policy = RelayPolicy(
    batch=20,
    lease=lease,
    publish_timeout=lease / 2,
    idle=timedelta(milliseconds=20),
)
blocking = Nebis(os.environ["STORE"], housekeeping=False)
looping = AsyncNebis(os.environ["STORE"], housekeeping=False)
is_async = bool(os.environ.get("IS_ASYNC"))
nebis = looping if is_async else blocking
relay = AsyncRelay(looping, broker, policy=policy) if is_async else Relay(blocking, broker, policy=policy)
