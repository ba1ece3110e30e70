from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.identity import (
    PerAccount,
    PerOperation,
    PerResourceType,
    Scope,
    begun_identity,
    identity,
    identity_within,
    scope_name,
)
from nebis.core.keygrammar import LONGEST_KEY, Key
from nebis.core.secret import Purpose, Secret, text_bytes

SECRET = Secret(bytes(range(32)))
OTHER_SECRET = Secret(bytes(range(1, 33)))
PLACES = st.tuples(st.text(min_size=1, max_size=8), st.text(max_size=8), st.text(max_size=8))


def test_an_identity_is_the_same_in_every_process() -> None:
    """Frozen: another identity would forget every record, and charge twice."""
    made = identity(SECRET, tenant="acct_1", scope="operation/create_payment", key=Key("7c9e"))

    assert made.hex() == "e6dd4289c6014d4e709b41d9b242694c87ae2985e94249ea2c6a41dda095d40d"


@given(PLACES)
def test_an_identity_is_the_signature_of_its_four_parts(place: tuple[str, str, str]) -> None:
    tenant, scope, key = place

    made = identity(SECRET, tenant=tenant, scope=scope, key=Key(key))

    assert made == SECRET.sign(Purpose.IDENTITY, b"nebis/identity/1", *map(text_bytes, place))


@given(PLACES, st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_an_identity_is_the_same_where_it_was_begun_for_the_tenant(place: tuple[str, str, str], spelled: str) -> None:
    tenant, scope, _ = place
    key = Key(spelled)
    begun = begun_identity(SECRET, tenant=tenant, scope=scope)

    assert identity_within(begun, key) == identity(SECRET, tenant=tenant, scope=scope, key=key)
    assert identity_within(begun, Key("7c9e")) == identity(SECRET, tenant=tenant, scope=scope, key=Key("7c9e"))


@pytest.mark.parametrize("size", [1, LONGEST_KEY - 1, LONGEST_KEY])
def test_a_key_of_any_size_has_the_same_identity_where_it_was_begun(size: int) -> None:
    key, begun = Key("k" * size), begun_identity(SECRET, tenant="acct_1", scope="create_payment")

    assert identity_within(begun, key) == identity(SECRET, tenant="acct_1", scope="create_payment", key=key)


@given(PLACES, PLACES)
def test_identities_are_equal_only_when_tenant_scope_and_key_are_f101_sec01(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    made = [identity(SECRET, tenant=tenant, scope=scope, key=Key(key)) for tenant, scope, key in (one, other)]

    assert (made[0] == made[1]) == (one == other)


def test_a_thousand_tenants_with_one_key_never_meet_sec01() -> None:
    made = {identity(SECRET, tenant=f"acct_{n}", scope="account", key=Key("same")) for n in range(1000)}

    assert len(made) == 1000


def test_moving_a_character_between_tenant_scope_and_key_is_another_identity_f101() -> None:
    made = {
        identity(SECRET, tenant="ab", scope="c", key=Key("d")),
        identity(SECRET, tenant="a", scope="bc", key=Key("d")),
        identity(SECRET, tenant="a", scope="b", key=Key("cd")),
    }

    assert len(made) == 3


def test_an_identity_is_neither_another_secrets_nor_another_purposes() -> None:
    made = identity(SECRET, tenant="a", scope="b", key=Key("c"))

    assert len(made) == 32
    assert made != identity(OTHER_SECRET, tenant="a", scope="b", key=Key("c"))
    assert made != SECRET.sign(Purpose.FINGERPRINT, b"nebis/identity/1", b"a", b"b", b"c")


def test_an_empty_tenant_is_refused_sec01() -> None:
    with pytest.raises(ValueError, match="verified authentication"):
        identity(SECRET, tenant="", scope="account", key=Key("c"))


@pytest.mark.parametrize(
    ("scope", "is_shared"),
    [(PerOperation(), False), (PerResourceType("payment"), True), (PerAccount(), True)],
)
def test_two_operations_share_a_key_only_in_the_wider_scopes(scope: Scope, is_shared: bool) -> None:
    create, refund = (scope_name(scope, operation=name) for name in ("create_payment", "refund_payment"))

    assert (create == refund) == is_shared


def test_scopes_of_different_kinds_never_meet() -> None:
    names = ["account", "payment", "operation/payment", "resource-type/payment"]
    scopes: list[Scope] = [PerOperation(), PerAccount(), *map(PerResourceType, names)]

    made = {(scope_name(scope, operation=name)) for scope, name in product(scopes, names)}

    assert len(made) == len(names) + 1 + len(names)


def test_a_resource_type_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the name"):
        PerResourceType("")
