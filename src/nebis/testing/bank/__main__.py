"""Run the bank: it says its port in one line of JSON and serves until it is killed or its standard input ends."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from nebis.testing.bank.books import Books
from nebis.testing.bank.server import BankServer


def main() -> int:
    """Serve on the loopback interface."""
    parser = argparse.ArgumentParser(prog="python -m nebis.testing.bank", description="An independent bank for tests.")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--file", type=Path, required=True, help="its books, a SQLite file; kept between runs")
    parser.add_argument("--while-open", action="store_true", help="serve only until standard input is closed")
    asked = parser.parse_args()
    books = Books(asked.file)
    server = BankServer(asked.port, books)
    sys.stdout.write(json.dumps({"port": server.server_address[1]}) + "\n")
    sys.stdout.flush()
    if asked.while_open:
        threading.Thread(target=_until_closed, args=(server,), daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        return 130
    finally:
        server.server_close()
        books.close()
    return 0


def _until_closed(server: BankServer) -> None:
    """Stop when whoever started the bank is gone, even by SIGKILL."""
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
