import base64
import hashlib
import hmac

import pytest

from nebis.errors import ConfigError
from nebis.messaging.signature import keys_of, signature_headers, verify_signature

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of 24 byte").decode()
BODY = b'{"test": 2432232314}'
NOW = 1_614_265_330.0


def signed(*secrets: str) -> dict[str, str]:
    return signature_headers(keys_of(secrets), message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", body=BODY, now=NOW)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """Computed here from the definition alone."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    content = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330." + BODY
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()

    assert signed(SECRET) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": f"v1,{expected}",
    }


def test_what_was_signed_is_verified_whatever_the_case_of_the_headers() -> None:
    headers = {name.title(): value for name, value in signed(SECRET).items()}

    assert verify_signature(SECRET, headers, BODY, now=NOW)


def test_secrets_are_replaced_without_a_gap() -> None:
    assert verify_signature(OTHER, signed(SECRET, OTHER), BODY, now=NOW)
    assert verify_signature([SECRET, OTHER], signed(SECRET), BODY, now=NOW)
    assert not verify_signature(OTHER, signed(SECRET), BODY, now=NOW)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "x", "1614265331", "9" * 400, "é"])
def test_nothing_signed_can_be_changed_or_left_out(header: str, value: str | None) -> None:
    headers = {**signed(SECRET), header: value}

    present = {name: value for name, value in headers.items() if value is not None}
    assert not verify_signature(SECRET, present, BODY, now=NOW)


def test_another_body_is_not_verified() -> None:
    assert not verify_signature(SECRET, signed(SECRET), BODY + b" ", now=NOW)


@pytest.mark.parametrize(("age", "expected"), [(299, True), (301, False), (-299, True), (-301, False)])
def test_an_old_request_is_not_verified(age: float, expected: bool) -> None:
    assert verify_signature(SECRET, signed(SECRET), BODY, now=NOW + age) is expected


@pytest.mark.parametrize("secret", ["", "short", "whsec_", "whsec_!!!", "whsec_c2hvcnQ="])
def test_a_secret_that_protects_nothing_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError):
        verify_signature(secret, signed(SECRET), BODY, now=NOW)


def test_without_any_secret_nothing_is_verified() -> None:
    assert not verify_signature((), signed(SECRET), BODY, now=NOW)
