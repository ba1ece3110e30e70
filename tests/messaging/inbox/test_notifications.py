"""The worked example of durable notifications, with a real mail server: one mail, whatever happens (E1, F112)."""

import asyncio
import importlib.util
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from nebis import Delivery, Done
from nebis.core.record import State
from nebis.ports.store import Scan
from tests.cli.command import nebis as command
from tests.engines.ports import free_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "notifications.py"
PAYMENT = b'{"payment": "p-1", "customer": "ada@shop.example", "cents": 1200}'


class MailServer:
    """Keeps what it is given; may answer badly, or accept and hang up instead of answering."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.answer = "250 OK"
        self.drops_reply = False

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's.
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.mails.append(envelope.content)
        if self.drops_reply:
            assert server.transport is not None
            server.transport.close()
            await asyncio.sleep(0)
        return self.answer


@pytest.fixture
def mail_server() -> Iterator[tuple[MailServer, int]]:
    """A real server on a port of its own."""
    kept = MailServer()
    controller = Controller(kept, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield kept, controller.port
    controller.stop()


@pytest.fixture
def shop(mail_server: tuple[MailServer, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, on a database of its own."""
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    monkeypatch.setenv("SHOP_SMTP_PORT", str(mail_server[1]))
    spec = importlib.util.spec_from_file_location("notifications", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "notifications", module)
    spec.loader.exec_module(module)
    with closing(sqlite3.connect(module.DATABASE)) as connection:
        connection.execute(module.SCHEMA)
    with module.nebis:
        yield module


@pytest.fixture
def mails(mail_server: tuple[MailServer, int]) -> MailServer:
    return mail_server[0]


def deliver(shop: ModuleType, message_id: str = "evt-1") -> Any:
    return shop.receipts.handle(Delivery(payload=PAYMENT, topic="payments", id=message_id))


def states(shop: ModuleType) -> list[str]:
    with closing(sqlite3.connect(shop.DATABASE)) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM email")]


def in_doubt(shop: ModuleType) -> list[str]:
    world, _ = shop.nebis.opened()
    found = world.backend.sessions.run(world.backend.store.scan(Scan(states=(State.IN_DOUBT,))))
    return [str(record.record_id) for record in found]


def test_message_that_comes_twice_makes_one_mail(shop: ModuleType, mails: MailServer) -> None:
    assert [deliver(shop), deliver(shop)] == [Done(is_duplicate=False), Done(is_duplicate=True)]
    assert deliver(shop, "the-same-payment-under-another-id") == Done(is_duplicate=False)

    assert [shop.send_waiting(), shop.send_waiting()] == [1, 0]

    [mail] = mails.mails
    assert b"Message-ID: <receipt-p-1@shop.example>" in mail
    assert states(shop) == ["sent"]


def test_server_that_accepts_and_drops_the_reply_gets_one_mail(
    shop: ModuleType, mails: MailServer, tmp_path: Path
) -> None:
    deliver(shop)
    mails.drops_reply = True

    assert [shop.send_waiting() for _ in range(3)] == [0, 0, 0]

    assert len(mails.mails) == 1, "nobody sends again what may have arrived"
    [record_id] = in_doubt(shop)
    assert states(shop) == ["waiting"]

    result = tmp_path / "result.json"
    result.write_text('"<receipt-p-1@shop.example>"')
    url = f"sqlite:///{shop.DATABASE}"
    why = ("--reason", "the log of the mail server has its Message-ID")
    resolved = command("resolve", record_id, "--happened", str(result), *why, store=url)
    assert resolved.status == 0, resolved.stderr

    assert shop.send_waiting() == 1
    assert states(shop) == ["sent"]
    assert len(mails.mails) == 1


@pytest.mark.parametrize(
    ("answer", "expected"), [("451 later", (["waiting"], ["sent"], 1)), ("554 never", (["refused"], ["refused"], 0))]
)
def test_definite_answer_is_no_doubt(
    shop: ModuleType, mails: MailServer, answer: str, expected: tuple[list[str], list[str], int]
) -> None:
    deliver(shop)
    mails.answer = answer
    shop.send_waiting()
    before = states(shop)
    mails.answer = "250 OK"
    shop.send_waiting()

    assert (before, states(shop), len(mails.mails)) == expected
    assert in_doubt(shop) == []


def test_server_that_is_not_there_is_no_doubt(
    shop: ModuleType, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(shop)
    port = shop.SMTP_PORT
    monkeypatch.setattr(shop, "SMTP_PORT", free_port())
    assert shop.send_waiting() == 0
    monkeypatch.setattr(shop, "SMTP_PORT", port)

    assert shop.send_waiting() == 1
    assert len(mails.mails) == 1
