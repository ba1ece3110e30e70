"""Takes orders through SQLAlchemy or Django in children, each of which is killed at another statement.

`python -m tests.transactions.statement_child` reads scenes as JSON and prints, for each, which orders were taken and
how their children ended. The last child of a scene is killed at no statement, because it ran out of them.
"""

import json
import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import psycopg

# Imported before any fork, so that it is done once.
from tests.transactions import django_shop, sqlalchemy_shops


def main() -> None:
    scenes = json.load(sys.stdin)
    for store_url in {scene["store_url"] for scene in scenes if scene["library"] == "django"}:
        assert _child(lambda: _make_tables(store_url)) == 0  # noqa: B023 - it runs at once.
    json.dump([_play(**scene) for scene in scenes], sys.stdout)


def _play(library: str, store_url: str, engine_url: str, mode: str) -> list[tuple[str, int]]:
    take = {"sqlalchemy": _with_sqlalchemy, "django": _with_django}[library]
    ends: list[tuple[str, int]] = []
    for number in count(1):
        for moment in ("before", "after"):
            order = f"{mode}-{moment}-{number:03}"
            ends.append((order, _child(lambda: take(store_url, engine_url, mode, order, _killer(moment, number)))))  # noqa: B023 - it runs at once.
        if ends[-1][1] != -signal.SIGKILL:
            return ends
    raise AssertionError("unreachable")


def _child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child never goes on as if it were its parent.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _killer(moment: str, number: int) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that kills this process before or after the n-th statement, ours or the application's."""
    seen = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        if not _is_statement(frame, event, argument):
            return
        if event in ("call", "c_call"):
            seen += 1
            if moment == "before" and seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
        elif moment == "after" and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return profile


def _is_statement(frame: FrameType, event: str, argument: Any) -> bool:
    if event.startswith("c_"):
        connection = getattr(argument, "__self__", None)
        return getattr(argument, "__name__", "") == "execute" and isinstance(
            connection, sqlite3.Cursor | sqlite3.Connection
        )
    return frame.f_code is psycopg.Cursor.execute.__code__


def _with_sqlalchemy(store_url: str, engine_url: str, mode: str, order: str, killer: Any) -> None:
    shop = sqlalchemy_shops.BlockingShop(store_url, engine_url, is_session=True)
    shop.nebis.open()
    sys.setprofile(killer)
    shop.order(order, sqlalchemy_shops.Order(order), mode)
    sys.setprofile(None)


def _make_tables(store_url: str) -> None:
    with django_shop.database("shop", store_url):
        django_shop.Shop(store_url, "shop").create_table()


def _with_django(store_url: str, engine_url: str, mode: str, order: str, killer: Any) -> None:
    with django_shop.database("shop", store_url):
        shop = django_shop.Shop(store_url, "shop")
        shop.nebis.open()
        sys.setprofile(killer)
        shop.order(order, django_shop.Order(order), mode)
        sys.setprofile(None)


if __name__ == "__main__":
    main()
