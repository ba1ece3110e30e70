"""Emails that are sent once: a row in the consumer's own transaction, and a sender that knows what SMTP promises.

A payment's message may come twice and its consumer may die anywhere: there is one row, because the row and the record
of the message are one commit, and because the row has a natural key of its own. The sender may die anywhere, too. SMTP
does not recognise a mail that is handed in again, so that a reply that never came is in doubt: it is not sent again
until somebody has looked.
"""

from __future__ import annotations

import os
import smtplib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from email.message import EmailMessage

from nebis import (
    Attempt,
    Declared,
    ExpiredPolicy,
    Incoming,
    InDoubt,
    Local,
    Nebis,
    NotYet,
    Rejected,
    Retryable,
    Unrecoverable,
    days,
)

DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")
SMTP_PORT = int(os.environ.get("SHOP_SMTP_PORT", "25"))
SCHEMA = """
CREATE TABLE IF NOT EXISTS email (
    key       TEXT PRIMARY KEY,
    recipient TEXT NOT NULL,
    subject   TEXT NOT NULL,
    body      TEXT NOT NULL,
    state     TEXT NOT NULL DEFAULT 'waiting'
)
"""

nebis = Nebis(f"sqlite:///{DATABASE}")


@dataclass(frozen=True)
class PaymentCreated:
    """The message that a payment was made."""

    payment: str
    customer: str
    cents: int


@dataclass(frozen=True)
class Email:
    """One row of the table; its key names what it is about, not when it was written."""

    key: str
    recipient: str
    subject: str
    body: str


@nebis.consumer("receipts", effects=Local)
def receipts(attempt: Attempt, message: Incoming[PaymentCreated]) -> None:
    """Write the email that is owed for a payment; everything else of the business goes into the same transaction."""
    payment = message.payload
    with attempt.transaction() as tx:
        tx.connection.execute(
            # Whoever tells of the payment under another id does not make a second receipt.
            "INSERT INTO email (key, recipient, subject, body) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
            (f"receipt-{payment.payment}", payment.customer, "Your receipt", f"We received {payment.cents} cents."),
        )
        tx.finish(None)


def hand_in(email: Email, *, timeout_seconds: float) -> str:
    """Hand an email to the server, and say what is known if that fails.

    Until the text was sent nothing can have happened. A reply, good or bad, is definite. If the connection ends instead
    of a reply, nobody knows: what is raised then leaves the effect open.
    """
    mail = EmailMessage()
    mail["Message-ID"] = f"<{email.key}@shop.example>"
    mail["From"], mail["To"], mail["Subject"] = "shop@shop.example", email.recipient, email.subject
    mail.set_content(email.body)
    try:
        server = smtplib.SMTP("127.0.0.1", SMTP_PORT, timeout=timeout_seconds)
    except (OSError, smtplib.SMTPException) as error:
        raise Retryable("the mail server is not there") from error
    with closing(server):
        try:
            server.ehlo_or_helo_if_needed()
            replies = [server.mail("shop@shop.example"), server.rcpt(email.recipient)]
        except (OSError, smtplib.SMTPException) as error:
            raise Retryable("the mail server hung up early") from error
        for code, _ in replies:
            _require_yes(code)
        try:
            code, _ = server.data(mail.as_bytes())
        except smtplib.SMTPDataError as refused:
            code = refused.smtp_code
        _require_yes(code)
    return str(mail["Message-ID"])


def _require_yes(code: int) -> None:
    if code >= 500:
        raise Rejected(f"smtp-{code}")
    if code >= 400:
        raise Retryable(f"the mail server said {code}")


@nebis.operation(
    "send_email", effects=Declared, retention=days(30), when_expired=ExpiredPolicy.REFUSE, doubt_deadline=days(30)
)
def send_email(attempt: Attempt, email: Email) -> str:
    """Send one email, and mark its row in the same commit as the outcome."""
    attempt.resource("email", email.key)
    message_id: str = attempt.effect("smtp", hand_in, email, recall=Unrecoverable())
    with attempt.transaction() as tx:
        tx.connection.execute("UPDATE email SET state = 'sent' WHERE key = ?", (email.key,))
        tx.finish(message_id)
    return message_id


def send_waiting() -> int:
    """Send what waits; call it as often as you like, from as many processes as you like. Return how many were sent."""
    with closing(sqlite3.connect(DATABASE)) as connection:
        rows = connection.execute("SELECT key, recipient, subject, body FROM email WHERE state = 'waiting'").fetchall()
    sent = 0
    for row in rows:
        email = Email(*row)
        try:
            send_email(key=email.key, tenant="notifications", command=email)
            sent += 1
        except (NotYet, Retryable, InDoubt, OSError, smtplib.SMTPException):
            continue  # It stays in the table: the next round tries again, or somebody resolves the doubt.
        except Rejected:
            with closing(sqlite3.connect(DATABASE)) as connection, connection:
                connection.execute("UPDATE email SET state = 'refused' WHERE key = ?", (email.key,))
    return sent
