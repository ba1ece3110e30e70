"""Start everything, say where it is, and end with it."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from examples.payments.demo.supervisor import Supervisor, Unhealthy

HOST = "127.0.0.1"
LARGEST_PORT = 65534  # The gateway has the next one.
FOLDER = Path(".nebis")


class CannotStart(Exception):
    """Why there is no demo, in words for whoever typed `make demo`, and the code to exit with."""

    def __init__(self, reason: str, code: int = 1) -> None:
        super().__init__(reason)
        self.code = code


def main() -> int:
    """Run until interrupted."""
    try:
        port = chosen_port()
        store = chosen_store()
        # Held here and handed to the server: whoever calls while it is being restarted waits, and is not refused.
        with listening(port) as door:
            listening(port + 1).close()
            asyncio.run(prepare())
            Supervisor(door=door, port=port, folder=FOLDER, store=store).run()
    except CannotStart as error:
        print(error, file=sys.stderr)
        return error.code
    except Unhealthy as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # While it was still starting.
        return 130
    return 0


def chosen_port() -> int:
    """Read PORT."""
    text = os.environ.get("PORT", "") or "8000"
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LARGEST_PORT:
        raise CannotStart(f"PORT must be a number from 1 to {LARGEST_PORT}, not {text!r}.", 2)
    os.environ["PORT"] = text
    return int(text)


def chosen_store() -> str:
    """Read NEBIS_STORE; without it, a SQLite file in a folder of our own."""
    store = os.environ.get("NEBIS_STORE", "")
    if store and not store.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise CannotStart("NEBIS_STORE must begin with sqlite:/// or postgresql://.", 2)
    try:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "writable").touch()
        (FOLDER / "writable").unlink()
    except OSError as error:
        raise CannotStart(
            f"Cannot write to {FOLDER.absolute()}: {error.strerror}. "
            "The demo keeps its files there; start it in a folder that you may write to."
        ) from error
    os.environ["NEBIS_STORE"] = store = store or "sqlite:///.nebis/payments.db"
    return store


def listening(port: int) -> socket.socket:
    """Take a port."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((HOST, port))
        door.listen(1024)
    except OSError as error:
        door.close()
        raise CannotStart(
            f"Cannot listen on port {port}: {error.strerror}. The demo needs two ports in a row; "
            "choose the first one, such as: PORT=9000 make demo"
        ) from error
    return door


async def prepare() -> None:
    """Create every table that is not there yet, so that the processes find a database that is ready."""
    # Imported now: these modules read the environment, which was wrong until it was looked at.
    from examples.payments.database import database  # noqa: PLC0415
    from examples.payments.settings import nebis  # noqa: PLC0415
    from nebis import NebisError, StoreUnavailable  # noqa: PLC0415

    try:
        async with nebis:
            await database.open()
            await database.close()
    except StoreUnavailable as error:
        raise CannotStart(f"The store of NEBIS_STORE is unavailable: {error.detail}.") from error
    except NebisError as error:
        raise CannotStart(f"The store of NEBIS_STORE cannot be used. {error}") from error


if __name__ == "__main__":
    sys.exit(main())
