import hashlib
import hmac
import json
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.canonical import canonical
from nebis.core.fingerprint import (
    NEVER_COUNTED,
    Fingerprint,
    Fingerprinting,
    FingerprintRegistry,
    FingerprintRule,
    FingerprintVersions,
    Pairs,
    fingerprint,
    matches,
    stored_version,
)
from nebis.core.plain import plain
from nebis.core.secret import Keyring, Purpose, Secret, framed, text_bytes
from nebis.core.strictjson import parse
from nebis.errors import SchemaMismatch

SECRET = Secret(bytes(range(32)))
KEYRING = Keyring((SECRET,))
RULE = FingerprintRule()


@dataclass
class Payment:
    amount: Decimal
    currency: str = "eur"
    sent_at: int = 0


def of(
    command: object,
    *,
    rule: FingerprintRule = RULE,
    operation: str = "create_payment",
    headers: Pairs = (),
    query: Pairs = (),
    api_version: str = "",
) -> Fingerprint:
    return fingerprint(
        SECRET, rule, operation=operation, command=command, headers=headers, query=query, api_version=api_version
    )


def test_a_fingerprint_is_the_same_in_every_process_and_release_f104() -> None:
    """Frozen: another digest turns every retry of a running system into a 422."""
    rule = FingerprintRule(version=3, headers=("Accept",))

    made = of(
        {"amount": 1},
        rule=rule,
        headers=[("accept", "a"), ("accept", "b")],
        query=[("q", "1")],
        api_version="2024-06-01",
    )

    assert made.hex() == "4df7c8253a1f1dc6335da2aa5a405e7d978a9300e244cac71e7de11204e42ea6"


@given(
    st.none() | st.integers() | st.dictionaries(st.text(), st.integers() | st.dates()),
    st.text(),
    st.text(),
    st.lists(st.tuples(st.text(), st.text()), max_size=3),
)
def test_a_fingerprint_is_the_signature_of_its_parts(
    command: object, operation: str, api_version: str, query: list[tuple[str, str]]
) -> None:
    made = of(command, operation=operation, api_version=api_version, query=query)

    assert made == SECRET.sign(
        Purpose.FINGERPRINT,
        b"nebis/fingerprint/1",
        (1).to_bytes(2, "big"),
        text_bytes(operation),
        text_bytes(api_version),
        framed(b"tree", canonical(plain(command))),
        framed(),
        framed(*(framed(text_bytes(name), text_bytes(value)) for name, value in query)),
    )


def test_same_command_matches_and_any_other_does_not() -> None:
    first = of(Payment(Decimal("10.00")))

    assert len(first) == 32
    assert matches(first, of(Payment(Decimal(10), "eur")))
    assert not matches(first, of(Payment(Decimal(11))))


def test_the_operation_always_counts_so_that_wider_scopes_answer_422() -> None:
    assert of({"a": 1}, operation="create_payment") != of({"a": 1}, operation="refund_payment")


def test_the_api_version_counts_f1() -> None:
    assert of({}, api_version="1") != of({}, api_version="2")


def test_the_version_of_the_rule_counts() -> None:
    assert of({}, rule=FingerprintRule(version=2)) != of({})


@given(st.lists(st.text(max_size=4), min_size=2, max_size=2), st.lists(st.text(max_size=4), min_size=2, max_size=2))
def test_neighbouring_parts_never_run_together_f101(one: list[str], other: list[str]) -> None:
    made = [of({}, operation=operation, api_version=version) for operation, version in (one, other)]

    assert (made[0] == made[1]) == (one == other)


def test_a_small_command_cannot_be_guessed_from_a_stolen_fingerprint_sec08() -> None:
    stolen = of({"amount": 7})

    guesses = {hashlib.sha256(json.dumps({"amount": n}).encode()).digest() for n in range(1000)}
    guesses |= {
        fingerprint(Secret(b"a wrong guess too"), RULE, operation="create_payment", command={"amount": n})
        for n in range(1000)
    }

    assert stolen not in guesses
    assert stolen in {of({"amount": n}) for n in range(1000)}


def test_fingerprints_are_compared_in_constant_time_sec08(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    one, other = of({"amount": 1}), of({"amount": 2})
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)))

    matches(one, other)

    assert compared == [(one, other)]


def test_raw_bytes_count_whole() -> None:
    assert of(b"a b") == of(bytearray(b"a b")) == of(memoryview(b"a b"))
    assert of(b"a b") != of(b"a  b")
    assert of(b"{}", rule=FingerprintRule(exclude=("a",))) == of(b"{}")


def test_raw_bytes_are_never_taken_for_a_tree() -> None:
    assert len({of(b"{}"), of({}), of("{}"), of([b"{}"])}) == 4


@pytest.mark.parametrize(
    "body",
    [
        b'{"amount":1,"to":{"a":[1,2],"b":null}}',
        b' { "to" : { "b" : null , "a" : [ 1 , 2 ] } ,\n "amount" : 1 } ',
        b'{"amount":1.0,"to":{"a":[1e0,20e-1],"b":null}}',
        b'{"\\u0061mount":1.000,"to":{"a":[1,2],"b":null}}',
    ],
)
def test_spelling_of_a_json_body_does_not_matter_f1(body: bytes) -> None:
    assert of(parse(body)) == of({"amount": 1, "to": {"a": [1, 2], "b": None}})


def test_excluded_fields_do_not_count_and_included_ones_do_f103() -> None:
    volatile = FingerprintRule(exclude=("sent_at",))
    chosen = FingerprintRule(include=("amount",))
    one, other = Payment(Decimal(1), "eur", 5), Payment(Decimal(1), "usd", 6)

    assert of(one, rule=volatile) == of(Payment(Decimal(1), "eur", 6), rule=volatile)
    assert of(one, rule=volatile) != of(other, rule=volatile)
    assert of(one, rule=chosen) == of(other, rule=chosen)
    assert of(one, rule=chosen) != of(Payment(Decimal(2), "eur", 5), rule=chosen)


def test_headers_count_only_where_chosen_f5() -> None:
    assert of({}, headers={"Accept": "a", "Prefer": "x", "Authorization": "one"}) == of({}, headers={"Accept": "b"})


def test_chosen_headers_count_whatever_their_case_and_order() -> None:
    rule = FingerprintRule(headers=("Accept", "X-Region"))
    first = of({}, rule=rule, headers={"Accept": "a", "X-Region": "eu"})

    assert first == of({}, rule=rule, headers=[("x-REGION", " eu\t"), ("other", "z"), ("accept", "a")])
    assert first == of(
        {}, rule=FingerprintRule(headers=("x-region", "accept")), headers=[("Accept", "a"), ("X-Region", "eu")]
    )
    assert first != of({}, rule=rule, headers={"Accept": "a", "X-Region": "us"})
    assert first != of({}, rule=rule, headers={"Accept": "a"})
    assert first != of({}, rule=rule, headers={"Accept": "eu", "X-Region": "a"})


def test_repeated_header_lines_mean_one_line_with_commas_and_absent_is_not_empty() -> None:
    rule = FingerprintRule(headers=("Accept",))

    assert of({}, rule=rule, headers=[("Accept", "a"), ("Accept", "b")]) == of(
        {}, rule=rule, headers={"Accept": "a, b"}
    )
    assert of({}, rule=rule, headers={"Accept": ""}) != of({}, rule=rule)


@pytest.mark.parametrize("name", sorted(NEVER_COUNTED))
def test_credentials_and_the_key_never_count_f1(name: str) -> None:
    with pytest.raises(ValueError, match=f"never count for a fingerprint: {name.title()}"):
        FingerprintRule(headers=("Accept", name.title()))


def test_the_query_counts_in_its_order_by_default_f102() -> None:
    first = of({}, query=[("a", "1"), ("b", "2")])

    assert first == of({}, query={"a": "1", "b": "2"})
    assert first != of({}, query=[("b", "2"), ("a", "1")])
    assert first != of({}, query=[("a", "1")])
    assert first != of({}, query=[("a", "1b"), ("", "2")])
    assert first != of({})


def test_a_sorted_query_ignores_the_order_of_names_but_not_of_values_f102() -> None:
    rule = FingerprintRule(is_query_sorted=True)
    first = of({}, rule=rule, query=[("b", "2"), ("a", "1"), ("a", "0")])

    assert first == of({}, rule=rule, query=[("a", "1"), ("b", "2"), ("a", "0")])
    assert first != of({}, rule=rule, query=[("a", "0"), ("a", "1"), ("b", "2")])


def test_only_chosen_query_names_count() -> None:
    rule = FingerprintRule(query=("a",))

    assert of({}, rule=rule, query=[("a", "1"), ("utm", "x")]) == of({}, rule=rule, query=[("utm", "y"), ("a", "1")])
    assert of({}, rule=rule, query=[("a", "1")]) != of({}, rule=rule, query=[("a", "2")])
    assert of({}, rule=FingerprintRule(query=()), query={"a": "1"}) == of({})


@pytest.mark.parametrize("version", [0, -1, 32768])
def test_a_version_outside_its_column_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 255"):
        FingerprintRule(version=version)


def test_a_rule_that_includes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="any command would match any other"):
        FingerprintRule(include=())


def test_an_old_record_is_compared_with_the_version_it_was_made_with_f104() -> None:
    old, new = FingerprintRule(version=1), FingerprintRule(version=2, exclude=("sent_at",))
    before = FingerprintVersions(old)
    after = FingerprintVersions(new, (old,))
    made_with, stored = before.fingerprints(KEYRING, operation="pay", command=Payment(Decimal(1), sent_at=5))[0]

    retry = dict(after.fingerprints(KEYRING, operation="pay", command=Payment(Decimal(1), sent_at=5)))
    other = dict(after.fingerprints(KEYRING, operation="pay", command=Payment(Decimal(2), sent_at=5)))

    assert list(retry) == [stored_version(SECRET, new), stored_version(SECRET, old)]
    assert list(retry) == [SECRET.number * 256 + new.version, SECRET.number * 256 + old.version]
    assert matches(stored, retry[made_with])
    assert not matches(stored, other[made_with])


def test_every_version_sees_all_headers_and_query_pairs_even_from_an_iterator() -> None:
    versions = FingerprintVersions(FingerprintRule(version=2, headers=("a",)), (FingerprintRule(headers=("a",)),))

    made = versions.fingerprints(
        KEYRING, operation="pay", command={}, headers=iter([("a", "1")]), query=iter([("q", "1")]), api_version="7"
    )

    for version, digest in made:
        assert digest == of(
            {},
            rule=versions.rule(version & 0xFF),
            operation="pay",
            headers={"a": "1"},
            query={"q": "1"},
            api_version="7",
        )


@pytest.mark.parametrize(
    "versions",
    [
        FingerprintVersions(),
        FingerprintVersions(FingerprintRule(version=7)),
        FingerprintVersions(FingerprintRule(exclude=("amount",))),
        FingerprintVersions(FingerprintRule(include=("amount",))),
        FingerprintVersions(FingerprintRule(headers=("accept",))),
        FingerprintVersions(FingerprintRule(version=2), (FingerprintRule(),)),
    ],
)
@pytest.mark.parametrize("keyring", [KEYRING, Keyring.of(b"n" * 32, bytes(range(32)))])
@pytest.mark.parametrize(
    "command",
    [
        {"amount": 1, "note": "counts unless a rule leaves it out"},
        {"amount": "9" * 5000},
        {"amount": "\u20ac"},
        Payment(Decimal(1)),
        [1, (2,)],
        b"{}",
        bytearray(9),
    ],
)
@pytest.mark.parametrize(("query", "api_version"), [((), ""), ((("a", "1"),), ""), ((), "2026-01")])
def test_what_is_prepared_for_an_operation_gives_the_same_fingerprints(
    versions: FingerprintVersions, keyring: Keyring, command: object, query: Pairs, api_version: str
) -> None:
    prepared = Fingerprinting(versions, keyring, operation="create_payment")
    headers = (("Accept", "text/plain"),)

    made = prepared.of(command, headers, query, api_version)

    assert made == versions.fingerprints(
        keyring, operation="create_payment", command=command, headers=headers, query=query, api_version=api_version
    )
    assert made == tuple(
        (
            stored_version(secret, rule),
            fingerprint(
                secret,
                rule,
                operation="create_payment",
                command=command,
                headers=headers,
                query=query,
                api_version=api_version,
            ),
        )
        for secret in keyring
        for rule in versions.rules
    )


def test_an_unknown_version_fails_closed_f104() -> None:
    versions = FingerprintVersions(FingerprintRule(version=2))

    assert versions.rule(2) is versions.newest
    with pytest.raises(SchemaMismatch, match="fingerprint version 1, which this process lacks; deploy the rule"):
        versions.rule(1)


def test_two_rules_of_one_version_are_refused() -> None:
    with pytest.raises(ValueError, match="same version"):
        FingerprintVersions(FingerprintRule(version=2), (FingerprintRule(version=2, exclude=("a",)),))


def test_the_newest_rule_needs_the_highest_version() -> None:
    with pytest.raises(ValueError, match="highest version"):
        FingerprintVersions(FingerprintRule(version=1), (FingerprintRule(version=2),))


def test_an_operation_may_have_rules_of_its_own() -> None:
    own = FingerprintVersions(FingerprintRule(version=5))
    rules = FingerprintRegistry(operations={"refund": own})

    assert rules.of("refund") is own
    assert rules.of("pay") is rules.shared
    assert rules.shared.newest == FingerprintRule(version=1)


def test_a_record_says_which_secret_and_rule_it_was_made_with_f116() -> None:
    other, rule = Secret(bytes(range(1, 33))), FingerprintRule(version=3)

    made = FingerprintVersions(rule).fingerprints(Keyring((other, SECRET)), operation="pay", command={})

    assert [version for version, _ in made] == [stored_version(other, rule), stored_version(SECRET, rule)]
    assert len({version for version, _ in made}) == 2
    assert len({digest for _, digest in made}) == 2
    assert all(version & 0xFF == 3 and version < 2**31 for version, _ in made)


@pytest.mark.parametrize("form_bytes", [2047, 2048, 2049])
def test_a_command_of_any_size_has_the_fingerprint_of_the_general_way(form_bytes: int) -> None:
    command = "a" * (form_bytes - len("s2042:"))
    versions = FingerprintVersions()

    assert len(canonical(command)) == form_bytes
    assert Fingerprinting(versions, KEYRING, operation="create_payment").of(command) == versions.fingerprints(
        KEYRING, operation="create_payment", command=command
    )


def test_rules_show_each_rule_once() -> None:
    assert "rules=" not in repr(FingerprintVersions())
