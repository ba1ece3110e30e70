"""Takes orders in children of its own, each of which is killed around its commit.

`python -m tests.transactions.sqlalchemy_child` reads a list of scenes as JSON and prints how each child ended. Children
are forked before anything is opened, so that only one process has to import everything.
"""

import json
import os
import signal
import sys

from sqlalchemy import event
from sqlalchemy.orm import Session

from tests.transactions.sqlalchemy_shops import BlockingShop, Order


def main() -> None:
    ends = []
    for scene in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            _order_and_die(**scene)
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    json.dump(ends, sys.stdout)


def _order_and_die(store_url: str, engine_url: str, mode: str, where: str) -> None:
    shop = BlockingShop(store_url, engine_url, is_session=True)
    with Session(shop.engine) as shop.handle:
        if where == "before the commit":
            event.listen(shop.engine, "commit", _die)
        else:
            event.listen(shop.handle, "after_commit", _die)
        shop.order_with("order", Order("order"), mode)


def _die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
