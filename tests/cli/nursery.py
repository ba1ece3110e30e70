"""A process that has the command imported already and forks a child for each call of it.

Starting an interpreter and importing everything takes most of the time of a short command. Each child is a process of
its own all the same: it gets its own arguments, environment and streams, and ends as an interpreter ends.
"""

import gc
import io
import json
import os
import socket
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress

import nebis.stores.sql.postgres.psycopg_access
import nebis.stores.sql.sqlite.backend  # noqa: F401 - imported once here, not in every child.
from nebis.cli import main

LARGEST_REQUEST = 256 * 1024


def warm_up() -> None:
    """Call it for nothing: the command, and what it is written with, import most of what they need late."""
    os.environ.pop("NEBIS_STORE", None)
    for arguments in (["--help"], ["stats"]):
        sys.argv = ["nebis", *arguments]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            main()
    gc.freeze()  # A child that ends would look for garbage among all of this, for longer than its command took.


def serve(line: socket.socket) -> None:
    """Fork for each request, and say how its child ended; return in the children only."""
    while True:
        request, streams, _, _ = socket.recv_fds(line, LARGEST_REQUEST, 2)
        if not request:
            sys.exit()
        child = os.fork()
        if child == 0:
            line.close()
            _become(json.loads(request), streams)
            return
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, object], streams: list[int]) -> None:
    sys.argv = ["nebis", *map(str, request["arguments"])]  # type: ignore[call-overload]
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(str(request["directory"]))
    for stream, place in zip(streams, (1, 2), strict=True):
        os.dup2(stream, place)
        os.close(stream)


if __name__ == "__main__":
    number = int(sys.argv[1])
    warm_up()
    serve(socket.socket(fileno=number))
    main()
