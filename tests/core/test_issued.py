"""Keys that the service issued itself."""

import string

import pytest

from nebis import TokenInvalid
from nebis.core.issued import RANDOM_BYTES, issue_key, read_issued
from nebis.core.keygrammar import parse_key
from nebis.core.secret import Keyring

OLD, NEW = Keyring.of(b"o" * 32), Keyring.of(b"n" * 32, b"o" * 32)
EXPIRES_AT = 1_900_000_000


def issued(random: bytes = bytes(RANDOM_BYTES), **changes: str) -> str:
    named = {"tenant": "acct_1", "operation": "pay", **changes}
    return issue_key(OLD.newest, **named, expires_at_seconds=EXPIRES_AT, random=random)


def test_issued_key_is_a_key_and_tells_when_it_expires() -> None:
    token = issued()

    assert parse_key(token) == token
    assert len(token) <= 255
    assert read_issued(token, OLD, tenant="acct_1", operation="pay") == EXPIRES_AT
    assert issued(random=b"x" * 16) != token


def test_issued_key_outlives_a_rotation_while_its_secret_is_listed() -> None:
    token = issued()

    assert read_issued(token, NEW, tenant="acct_1", operation="pay") == EXPIRES_AT
    with pytest.raises(TokenInvalid):
        read_issued(token, Keyring.of(b"n" * 32), tenant="acct_1", operation="pay")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nk1",
        "nk1..",
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
        "nk2" + issued()[3:],
        issued() + "A",
        issued() + ".",
        issued(tenant="acct_2"),
        issued(operation="refund"),
        issued(tenant="acct_1pay", operation=""),
        "nk1." + "\ud800" * 28 + ".\ud800",
    ],
    ids=ascii,
)
def test_whatever_else_is_refused_alike(token: str) -> None:
    """F101: tenant and operation cannot be shifted into each other."""
    with pytest.raises(TokenInvalid):
        read_issued(token, OLD, tenant="acct_1", operation="pay")


def test_no_character_of_an_issued_key_can_be_changed() -> None:
    token = issued()
    alphabet = string.ascii_letters + string.digits + "-_."
    forged = {
        token[:place] + other + token[place + 1 :]
        for place in range(len(token))
        for other in alphabet
        if other != token[place]
    }

    for each in forged:
        with pytest.raises(TokenInvalid):
            read_issued(each, OLD, tenant="acct_1", operation="pay")
