import base64
import copy
import hmac
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.secret import Keyring, Purpose, Secret, framed, text_bytes
from nebis.errors import ConfigError

MATERIAL = bytes(range(32))


def test_a_secret_shorter_than_sixteen_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes; this one has 15"):
        Secret(b"x" * 15)


def test_a_secret_never_shows_itself_sec26() -> None:
    secret = Secret(b"a-very-secret-value-indeed")

    shown = f"{secret} {secret!r} {Keyring((secret,))!r} {[secret]}"

    assert "very-secret" not in shown
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied_sec26(leak: object) -> None:
    assert callable(leak)

    with pytest.raises(TypeError, match="never pickled"):
        leak(Secret(MATERIAL))


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_a_secret_has_begun_is_neither_shown_nor_pickled_sec26(leak: object) -> None:
    assert callable(leak)
    begun = Secret(MATERIAL).begun(Purpose.IDENTITY, b"acct_1")

    with pytest.raises(TypeError, match="never pickled"):
        leak(begun)
    assert "acct_1" not in repr(begun)
    assert not hasattr(begun, "__dict__")


@given(st.sampled_from(Purpose), st.binary(max_size=300), st.lists(st.binary(max_size=300), max_size=3))
def test_what_was_begun_signs_the_whole_message_again_and_again(
    purpose: Purpose, beginning: bytes, rests: list[bytes]
) -> None:
    secret = Secret(MATERIAL)
    begun = secret.begun(purpose, beginning)

    for rest in rests:
        assert begun.sign(rest) == hmac.digest(secret.derive(purpose), beginning + rest, "sha256")


def test_equal_material_is_the_same_secret_and_other_material_is_not() -> None:
    one, same, other = Secret(MATERIAL), Secret(MATERIAL), Secret(MATERIAL[::-1])

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != MATERIAL


def test_every_purpose_has_a_key_of_its_own() -> None:
    secret = Secret(MATERIAL)

    keys = {secret.derive(purpose) for purpose in Purpose}

    assert len(keys) == len(Purpose)
    assert all(len(key) == 32 for key in keys)
    assert MATERIAL not in keys


def test_derived_keys_and_check_value_are_the_same_in_every_process() -> None:
    """Frozen: another derivation would forget every record, and charge twice."""
    secret = Secret(MATERIAL)

    assert secret.derive(Purpose.IDENTITY).hex() == "cd9108d52769e0a356a76ca27a31181590f481fad6156428f059bc29683252c4"
    assert secret.number == 0x53F66F // 4
    assert secret.check_value().hex() == "53f66f3b16813e52c778c5c7b3cd8a0c3f4ee975f3d147eaaa91e560b4a7c9b7"


def test_the_check_value_tells_secrets_apart() -> None:
    assert Secret(MATERIAL).check_value() != Secret(MATERIAL + b"!").check_value()


@given(st.lists(st.binary(max_size=20)), st.lists(st.binary(max_size=20)))
def test_framed_parts_are_equal_only_when_the_parts_are_f101(one: list[bytes], other: list[bytes]) -> None:
    assert (framed(*one) == framed(*other)) == (one == other)


def test_moving_a_byte_between_neighbours_changes_the_signature_f101() -> None:
    secret = Secret(MATERIAL)

    assert secret.sign(Purpose.TOKEN, b"a", b"bc") != secret.sign(Purpose.TOKEN, b"ab", b"c")


@given(st.sampled_from(Purpose), st.lists(st.binary(max_size=200), max_size=4))
def test_a_signature_is_the_hmac_of_the_framed_parts(purpose: Purpose, parts: list[bytes]) -> None:
    """Frozen: the standard library's own says what it is, however the signer comes to it."""
    secret = Secret(MATERIAL)

    assert secret.sign(purpose, *parts) == hmac.digest(secret.derive(purpose), framed(*parts), "sha256")


def test_text_with_half_a_surrogate_pair_is_encoded_all_the_same() -> None:
    assert text_bytes("\ud800") != text_bytes("\ud801")


def test_a_keyring_writes_with_the_newest_and_reads_with_all() -> None:
    keyring = Keyring.of(b"n" * 16, b"o" * 16)

    assert keyring.newest == Secret(b"n" * 16)
    assert list(keyring) == [Secret(b"n" * 16), Secret(b"o" * 16)]


@pytest.mark.parametrize(
    "spelling",
    [
        MATERIAL.hex(),
        MATERIAL.hex().upper(),
        base64.b64encode(MATERIAL).decode(),
        base64.urlsafe_b64encode(MATERIAL).decode().rstrip("="),
        f"  {MATERIAL.hex()} ",
    ],
    ids=["hex", "upper-case-hex", "base64", "urlsafe-unpadded", "spaces-around"],
)
def test_hex_and_base64_spell_the_same_secret(spelling: str) -> None:
    assert Keyring.parse(spelling).newest == Secret(MATERIAL)


def test_both_base64_alphabets_are_read() -> None:
    material = b"\xfb\xef\xff" * 8

    assert Keyring.parse(base64.b64encode(material).decode()) == Keyring.of(material)
    assert Keyring.parse(base64.urlsafe_b64encode(material).decode()) == Keyring.of(material)


@pytest.mark.parametrize(
    "text", ["correct horse battery staple", "0123456789abcdef", "pässword-pässword!", "fourfour fourfour four four!"]
)
def test_anything_else_is_plain_text(text: str) -> None:
    assert Keyring.parse(text).newest == Secret(text.encode())


def test_several_secrets_are_read_newest_first() -> None:
    new, old = "the newest secret!", "the older secret!!"

    assert Keyring.parse(f"{new},{old}") == Keyring.of(new.encode(), old.encode())


def test_every_unusable_secret_is_named_by_its_place_and_never_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        Keyring.parse("hunter2,the older secret!!,,swordfish")

    assert len(caught.value.faults) == 3
    assert [fault.split(" is ")[0] for fault in caught.value.faults] == [
        "Secret number 1",
        "Secret number 3",
        "Secret number 4",
    ]
    assert "token_hex" in caught.value.faults[0]
    assert "hunter2" not in str(caught.value)
    assert "swordfish" not in str(caught.value)


def test_an_empty_keyring_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Keyring(())


def test_one_secret_listed_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="listed twice"):
        Keyring.parse(f"{MATERIAL.hex()},{base64.b64encode(MATERIAL).decode()}")


def test_two_secrets_of_one_number_cannot_be_used_together() -> None:
    """A record says by number which secret it was made with; two of them could not be told apart."""
    known: dict[int, Secret] = {}
    for place in range(1_000_000):
        secret = Secret(place.to_bytes(16, "big"))
        if secret.number in known:
            break
        known[secret.number] = secret

    with pytest.raises(ConfigError, match="same number"):
        Keyring((secret, known[secret.number]))
