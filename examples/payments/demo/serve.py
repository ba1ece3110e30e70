"""The payments API as the demo runs it: on the supervisor's socket, with the Retry Lab beside it."""

import socket
import sys

import uvicorn

from examples.payments.api import app
from examples.payments.demo import faults, lab
from examples.payments.settings import watchers

GRACE_SECONDS = 2


def main(door: int) -> None:
    """Serve until told to stop."""
    faults.install()
    watchers.append(lab.hub.watch)
    app.add_middleware(faults.Faults)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS, access_log=False)
    server = uvicorn.Server(config)
    lab.streaming(lambda: server.should_exit)
    app.include_router(lab.router)
    server.run(sockets=[socket.socket(fileno=door)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
