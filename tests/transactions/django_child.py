"""Takes orders through Django in children of its own, each of which is killed around its commit.

`python -m tests.transactions.django_child` reads a list of scenes as JSON and prints how each child ended.
"""

import json
import os
import signal
import sys

from django.db import connections, transaction

from tests.transactions.django_shop import Order, Shop, database


def main() -> None:
    ends = []
    for scene in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            _order_and_die(**scene)
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    json.dump(ends, sys.stdout)


def _order_and_die(store_url: str, mode: str, where: str) -> None:
    with database("shop", store_url):
        shop = Shop(store_url, "shop")
        shop.create_table()
        if where == "before the commit":
            connections["shop"]._commit = _die
        else:
            fulfil = shop.fulfil

            def fulfil_and_die(order: Order) -> str:
                transaction.on_commit(_die, using="shop")
                return fulfil(order)

            shop.fulfil = fulfil_and_die  # type: ignore[method-assign]
        shop.order("order", Order("order"), mode)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
