"""Opening a store: every process must know every secret in use."""

import pytest

from nebis import ConfigError
from nebis.core.secret import Keyring, Secret
from nebis.flow import drive
from nebis.flows.start import start
from nebis.stores.memory import MemoryStore

OLD, NEW, THIRD = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
CANDIDATE = bytes(range(100, 132))


def opened(store: MemoryStore, configured: Keyring | None = None, candidate: bytes = CANDIDATE) -> Keyring:
    return drive(start(store, configured=configured, candidate=candidate, migrates=True), store.perform).keyring


def test_first_process_without_configuration_gives_the_store_its_secret() -> None:
    assert opened(MemoryStore()).newest == Secret(CANDIDATE)


def test_later_processes_without_configuration_use_the_same_secret() -> None:
    store = MemoryStore()
    first = opened(store)

    assert opened(store, candidate=OLD) == first


def test_identities_are_made_with_the_stores_own_secret_whatever_is_configured_f116() -> None:
    store = MemoryStore()

    made = [
        drive(start(store, configured=keyring, candidate=CANDIDATE, migrates=True), store.perform)
        for keyring in (Keyring.of(OLD), Keyring.of(NEW, OLD))
    ]

    assert {secrets.identity for secrets in made} == {Secret(CANDIDATE)}
    assert [secrets.keyring.newest for secrets in made] == [Secret(OLD), Secret(NEW)]


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


def test_a_store_that_was_used_without_configuration_can_be_given_a_secret() -> None:
    store = MemoryStore()
    opened(store)

    assert opened(store, Keyring.of(OLD)).secrets == (Secret(OLD), Secret(CANDIDATE))
    with pytest.raises(ConfigError, match="no secret is configured"):
        opened(store)


def test_rotation_lists_the_new_secret_first_and_keeps_the_old_one() -> None:
    store = MemoryStore()
    opened(store, Keyring.of(OLD))

    assert opened(store, Keyring.of(NEW, OLD)).newest == Secret(NEW)
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
