"""The listening thread, through both drivers."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from nebis.ports.store import Listener
from nebis.stores.sql.postgres.backend import open_async, open_blocking
from tests.engines.proxy import FaultProxy
from tests.stores.postgres_ways import execute

Listen = Callable[[Callable[[bytes], None]], Listener]
IDENTITY = bytes(range(32))
PROBE = bytes(32)
LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN %' AND datname = current_database()"


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.before(postgres_url) as proxy:
        yield proxy


@pytest.fixture(params=["postgresql", "postgresql+asyncpg"])
def listen(request: pytest.FixtureRequest, proxy: FaultProxy, postgres_url: str) -> Listen:
    opened = open_async(f"{request.param}://{proxy.url(postgres_url).partition('://')[2]}")
    assert opened.listen is not None
    return opened.listen


class Heard:
    """Keeps what a listener hears. Only by hearing can be told that it listens: the server knows it a moment before."""

    def __init__(self) -> None:
        self.identities: queue.Queue[bytes] = queue.Queue()
        self._has_probe = threading.Event()

    def __call__(self, identity: bytes) -> None:
        if identity == PROBE:
            self._has_probe.set()
        else:
            self.identities.put(identity)

    def next(self) -> bytes:
        return self.identities.get(timeout=10)

    def wait_until_listening(self, url: str) -> None:
        self._has_probe.clear()
        while not self._has_probe.wait(0.05):
            _notify(url, PROBE.hex())


def _wait_until_asked(url: str) -> None:
    while execute(url, LISTENING) != [(1,)]:
        pass


def _notify(url: str, payload: str = IDENTITY.hex(), channel: str = "nebis") -> None:
    execute(url, f"SELECT pg_notify('{channel}', '{payload}')")


def test_an_identity_is_heard(listen: Listen, postgres_url: str) -> None:
    heard = Heard()
    listener = listen(heard)
    heard.wait_until_listening(postgres_url)

    _notify(postgres_url)

    assert heard.next() == IDENTITY
    listener.close()


def test_what_is_no_identity_is_ignored_and_a_failing_callback_survived(listen: Listen, postgres_url: str) -> None:
    heard = Heard()

    def callback(identity: bytes) -> None:
        heard(identity)
        raise ZeroDivisionError

    listener = listen(callback)
    heard.wait_until_listening(postgres_url)

    _notify(postgres_url, "not hexadecimal")
    _notify(postgres_url, channel="somebody_else")
    _notify(postgres_url, "01")
    _notify(postgres_url, "02")

    assert [heard.next(), heard.next()] == [b"\1", b"\2"]
    listener.close()


def test_it_listens_again_after_its_connection_was_lost_f026(
    listen: Listen, postgres_url: str, proxy: FaultProxy
) -> None:
    heard = Heard()
    listener = listen(heard)
    heard.wait_until_listening(postgres_url)

    proxy.reset_all()
    while execute(postgres_url, LISTENING) != [(0,)]:
        pass
    heard.wait_until_listening(postgres_url)
    _notify(postgres_url)

    assert heard.next() == IDENTITY
    listener.close()


def test_closing_ends_the_connection_at_once(listen: Listen, postgres_url: str) -> None:
    listener = listen(lambda _: None)
    _wait_until_asked(postgres_url)

    listener.close()

    while execute(postgres_url, LISTENING) != [(0,)]:
        pass


def test_closing_while_nobody_can_be_reached_does_not_wait(listen: Listen, proxy: FaultProxy) -> None:
    proxy.refuse()
    listener = listen(lambda _: None)

    listener.close()


def test_behind_a_pooler_nobody_listens_f044(postgres_url: str) -> None:
    backend = open_blocking(postgres_url, pooler=True)

    assert backend.listen is None
    assert not backend.store.capabilities.wakes_other_processes
