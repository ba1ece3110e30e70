"""A process that serves one contender's application with uvicorn, on a free port of the loopback interface."""

import socket
import sys
from importlib import import_module

from benchmarks.contender import Contender, Places
from benchmarks.contenders import contender_of
from benchmarks.load import described
from benchmarks.work import Work
from benchmarks.worker import let_rest, parser, places_of, run_loop, say


async def serve(contender: Contender, places: Places) -> None:
    """Open the application and serve it until the process is told to end."""
    uvicorn = import_module("uvicorn")
    assert contender.app is not None
    async with contender.app(places, Work()) as app:
        listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", access_log=False, log_level="warning"))
        let_rest()
        say({"ready": True, "port": listening.getsockname()[1]})
        await server.serve(sockets=[listening])


def main() -> None:
    arguments = parser().parse_args()
    sys.stdout = sys.stderr
    try:
        run_loop(serve(contender_of(arguments.name), places_of(arguments)))
    except Exception as error:  # noqa: BLE001 - the reason why a contender does not take part.
        say({"failed": described(error)})


if __name__ == "__main__":
    main()
