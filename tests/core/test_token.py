"""One-time tokens for downstreams: genuine for one record and one name, under any key in use."""

from uuid import UUID

import pytest

from nebis import TokenInvalid
from nebis.core.record import RecordId
from nebis.core.token import issue_token, verify_token

KEY, OLD_KEY = bytes(range(32)), bytes(range(32, 64))
RECORD_ID = RecordId(UUID(int=7))
TOKEN = issue_token(KEY, RECORD_ID, "charge")


def test_a_genuine_token_names_its_operation() -> None:
    assert verify_token(TOKEN, [KEY], name="charge") == str(RECORD_ID)


def test_a_token_of_an_older_key_is_genuine_while_that_key_is_listed() -> None:
    assert verify_token(issue_token(OLD_KEY, RECORD_ID, "charge"), [KEY, OLD_KEY], name="charge") == str(RECORD_ID)


def test_a_token_is_the_same_on_every_attempt() -> None:
    assert issue_token(KEY, RECORD_ID, "charge") == TOKEN


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nebis1",
        "nebis1..",
        TOKEN[:-1],
        TOKEN + "A",
        TOKEN.replace("nebis1", "nebis2"),
        TOKEN.replace(RECORD_ID.hex, UUID(int=8).hex),
        TOKEN + "A" * 200,
        TOKEN.replace(".", ""),
        TOKEN[:-1] + "\N{SNOWMAN}",
    ],
)
def test_anything_else_is_refused(token: str) -> None:
    with pytest.raises(TokenInvalid):
        verify_token(token, [KEY], name="charge")


@pytest.mark.parametrize(("keys", "name"), [([OLD_KEY], "charge"), ([KEY], "refund"), ([], "charge")])
def test_a_token_fits_no_other_key_and_no_other_effect(keys: list[bytes], name: str) -> None:
    with pytest.raises(TokenInvalid):
        verify_token(TOKEN, keys, name=name)
