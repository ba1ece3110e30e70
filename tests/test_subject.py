"""What a request computes by itself: the same bytes whatever was prepared for its operation, tenant and secrets."""

from typing import Any, Unpack

import pytest

import nebis.subject as module
from nebis import Declared
from nebis.core.identity import identity
from nebis.core.keygrammar import Key
from nebis.core.secret import Keyring, Secret, Secrets
from nebis.declaration import Declaration, PolicyOptions, declare
from nebis.errors import KeyMalformed, MisuseError
from tests.flows.specimens import DRAWN

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
COMMAND = {"amount": 4200, "currency": "EUR"}
FIRST = Secrets(identity=Secret(bytes(32)), keyring=Keyring.of(bytes(range(32))))
ROTATED = Secrets(identity=Secret(bytes(32)), keyring=Keyring.of(b"n" * 32, bytes(range(32))))
ANOTHER_STORE = Secrets(identity=Secret(b"another store's own secret"), keyring=Keyring.of(bytes(range(32))))


def declaration(**options: Unpack[PolicyOptions]) -> Declaration[Any, Any]:
    def pay(command: dict[str, Any]) -> None:
        raise AssertionError(f"never called with {len(command)} members")

    return declare("pay", pay, is_async=False, effects=Declared, options=options)


@pytest.mark.parametrize("key", [KEY, "order-1138-of-customer-42", '"a quoted-key-with\\"marks"'.replace(" ", "-")])
def test_claim_has_the_identity_and_fingerprints_of_the_secrets_at_hand(key: str) -> None:
    declared = declaration()

    for secrets in (FIRST, ROTATED, FIRST, ANOTHER_STORE):
        claim = declared.call(secrets, key=key, tenant="acct_1", command=COMMAND).claim(DRAWN.record_id, DRAWN.nonce)

        spelled = Key(key.strip('"').replace("\\", ""))
        assert claim.key == spelled
        assert claim.identity == identity(secrets.identity, tenant="acct_1", scope="operation/pay", key=spelled)
        assert claim.fingerprints == declared.fingerprints.fingerprints(
            secrets.keyring, operation="pay", command=COMMAND
        )


def test_what_was_prepared_for_tenants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 3)
    declared = declaration()

    for tenant in [f"acct_{number % 7}" for number in range(20)]:
        claim = declared.call(FIRST, key=KEY, tenant=tenant, command=COMMAND).claim(DRAWN.record_id, DRAWN.nonce)

        assert claim.identity == identity(FIRST.identity, tenant=tenant, scope="operation/pay", key=Key(KEY))
        assert declared._hand is not None
        assert len(declared._hand.places) <= 3


def test_claims_of_an_operation_share_their_terms() -> None:
    declared = declaration()

    one, other = (
        declared.call(FIRST, key=key, tenant="acct_1", command=COMMAND).claim(DRAWN.record_id, DRAWN.nonce)
        for key in (KEY, KEY[::-1])
    )

    assert one.terms is other.terms
    assert (one.scope, one.operation, one.mode) == ("operation/pay", "pay", Declared)
    assert (one.lease_us, one.retention) == (declared.policy.lease_us, declared.policy.kept)
    assert (one.when_expired, one.will_wait) == (declared.policy.when_expired, False)


@pytest.mark.parametrize("tenant", ["", "x" * 256, "zero\x00", "half\ud800"])
def test_tenant_that_cannot_own_keys_is_refused_each_time_sec02(tenant: str) -> None:
    declared = declaration()

    for _ in range(2):
        with pytest.raises(MisuseError, match="tenant"):
            declared.call(FIRST, key=KEY, tenant=tenant, command=COMMAND)


def test_key_shorter_than_the_policy_wants_is_refused_even_a_uuid() -> None:
    with pytest.raises(KeyMalformed, match="at least 37 characters"):
        declaration(shortest_key=37).call(FIRST, key=KEY, tenant="acct_1", command=COMMAND)
