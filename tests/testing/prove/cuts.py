"""Cut after each protocol message, in each direction, on each driver of PostgreSQL; then let the client come back.

python -m tests.testing.prove.cuts [--every 3]
"""

import argparse
import json
import sys
import time

from nebis.testing.quiet import quiet
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.testing.prove.cutting_proxy import CuttingProxy, Direction
from tests.transactions.scenes import Books
from tests.transactions.shops import MODES, POSTGRES, AsyncShop, BlockingShop, open_shop

LONGEST_SECONDS = 20.0


class Cutter:
    """One shop behind a proxy; every cut has a key of its own."""

    def __init__(self, driver: str, mode: str, proxy: CuttingProxy) -> None:
        self.name = f"{driver}-{mode}"
        self._proxy = proxy
        self._shop = open_shop(driver, proxy.url, mode)
        self.violations: list[str] = []
        self.cuts = 0

    def close(self) -> None:
        self._shop.close()

    def conversation(self) -> dict[Direction, int]:
        """Count the messages of one request on a warm connection."""
        for number in range(2):
            self._proxy.arm()
            self._shop.sell(f"{self.name}-counted-{number}")
        return self._proxy.counted()

    def cut(self, direction: Direction, number: int) -> None:
        """Cut after one message, come back as a client does, and look at what happened."""
        key = f"{self.name}-{direction.name.lower()}-{number}"
        _sold(self._shop, f"{key}-before")  # Connections are there again after the last cut.
        self._proxy.arm(direction, number)
        told = [_sold(self._shop, key), _sold(self._shop, key)]
        self.cuts += self._proxy.was_cut.is_set()
        self._proxy.arm()
        seen = self._shop.books.of(key)
        if seen != (1, 1) or set(told) != {"paid"}:
            self.violations.append(f"cut after message {number} {direction} ({self.name}): {seen}, told {told}")


def _sold(shop: BlockingShop | AsyncShop, key: str) -> str:
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        try:
            return shop.sell(key).result
        except Exception as error:  # noqa: BLE001 - a handler's own statement fails as its driver says; clients retry.
            if time.monotonic() > deadline:
                return f"never: {type(error).__name__}"
        time.sleep(0.02)  # As a client waits before it comes back.


@quiet()
def run(every: int = 1) -> dict[str, object]:
    """Cut after every message, or after every n-th; return what was seen."""
    cuts, violations = 0, list[str]()
    with PostgresServer(find_binaries()) as server:
        url = server.create_database()
        Books(url).create()
        for driver in POSTGRES:
            for mode in MODES:
                with CuttingProxy(url) as proxy:
                    cutter = Cutter(driver, mode, proxy)
                    for direction, messages in cutter.conversation().items():
                        for number in range(1, messages + 1, every):
                            cutter.cut(direction, number)
                    cutter.close()
                cuts += cutter.cuts
                violations += cutter.violations
    return {"protocol_cuts": cuts, "violations": violations}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    seen = run(parser.parse_args().every)
    print(json.dumps(seen))  # noqa: T201 - a command speaks by printing.
    sys.exit(1 if seen["violations"] else 0)
