"""What the tests of Flask share: a server around an application, and a request that is sent twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nebis.testing.http_conformance import Client, Reply
from nebis.testing.http_conformance.client import new_key
from tests.integrations.wsgi_servers import waitress_serving


def tenant() -> str:
    return "acct-1"


@contextmanager
def serving(app: Any) -> Iterator[Client]:
    with waitress_serving(app) as address:
        yield Client(address)


def twice(client: Client, path: str = "/things", **given: Any) -> tuple[Reply, Reply]:
    key = new_key()
    given = given or {"command": {}}
    return client.post(path, key=key, **given), client.post(path, key=key, **given)
