"""Opening a store: every process must know every secret in use."""

import pytest

from nebis import ConfigError
from nebis.core.secret import Keyring, Secret, Secrets
from nebis.flow import drive
from nebis.flows.start import start
from nebis.stores.memory import MemoryStore

OLD, NEW, THIRD = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
CANDIDATE = bytes(range(100, 132))


def opened(store: MemoryStore, configured: Keyring | None = None, candidate: bytes = CANDIDATE) -> Secrets:
    return drive(start(store, configured=configured, candidate=candidate, migrates=True), store.perform)


def test_first_process_without_configuration_gives_the_store_its_secret() -> None:
    secrets = opened(MemoryStore())

    assert secrets.identity == secrets.keyring.newest == Secret(CANDIDATE)


def test_later_processes_without_configuration_use_the_same_secret() -> None:
    store = MemoryStore()
    first = opened(store)

    assert opened(store, candidate=OLD) == first


def test_configured_secret_never_moves_identities() -> None:
    """F116: they are made with the store's own secret, so that no rotation can forget a key."""
    store = MemoryStore()
    first = opened(store, Keyring.of(OLD))
    second = opened(store, Keyring.of(NEW, OLD), candidate=THIRD)

    assert first.identity == second.identity == Secret(CANDIDATE)
    assert first.keyring.secrets == (Secret(OLD),)
    assert second.keyring.newest == Secret(NEW)


def test_store_remembers_check_values_and_never_a_configured_secret() -> None:
    store = MemoryStore()
    opened(store, Keyring.of(OLD))

    known = drive(store.secrets(None), store.perform)

    assert known.generated == CANDIDATE
    assert known.check_values == {Secret(OLD).check_value()}


def test_wrong_secret_refuses_to_start() -> None:
    store = MemoryStore()
    opened(store, Keyring.of(OLD))

    with pytest.raises(ConfigError, match="another secret"):
        opened(store, Keyring.of(NEW))


def test_missing_secret_refuses_to_start() -> None:
    store = MemoryStore()
    opened(store, Keyring.of(OLD))

    with pytest.raises(ConfigError, match="no secret is configured"):
        opened(store)


def test_store_that_was_used_without_configuration_may_be_given_one() -> None:
    store = MemoryStore()
    opened(store)

    secrets = opened(store, Keyring.of(OLD))

    assert secrets.keyring.secrets == (Secret(OLD), Secret(CANDIDATE))


def test_store_s_own_secret_may_also_be_listed() -> None:
    store = MemoryStore()
    opened(store)

    assert opened(store, Keyring.of(OLD, CANDIDATE)).keyring.secrets == (Secret(OLD), Secret(CANDIDATE))


def test_rotation_lists_the_new_secret_first_and_keeps_the_old_one() -> None:
    store = MemoryStore()
    opened(store, Keyring.of(OLD))

    assert opened(store, Keyring.of(NEW, OLD)).keyring.newest == Secret(NEW)
    with pytest.raises(ConfigError, match="1 missing"):
        opened(store, Keyring.of(OLD))
    with pytest.raises(ConfigError, match="2 missing"):
        opened(store, Keyring.of(THIRD))


def test_two_processes_that_start_at_once_with_different_secrets_never_both_start() -> None:
    store = MemoryStore()
    first = start(store, configured=Keyring.of(OLD), candidate=CANDIDATE, migrates=False)
    second = start(store, configured=Keyring.of(NEW), candidate=CANDIDATE, migrates=False)
    refused = 0

    asks = [next(first), next(second)]
    flows = [first, second]
    while flows:
        for flow, ask in list(zip(flows, asks, strict=True)):
            place = flows.index(flow)
            try:
                asks[place] = flow.send(store.perform(ask))
            except ConfigError:
                refused += 1
            except StopIteration:
                pass
            else:
                continue
            del flows[place], asks[place]

    assert refused >= 1
