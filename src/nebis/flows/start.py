"""Open a store: bring its schema up to date and make sure that this process knows every secret in use."""

from __future__ import annotations

from nebis.core.secret import Keyring, Secret
from nebis.errors import ConfigError
from nebis.flow import Flow
from nebis.ports.store import SecretState, Store


def start(store: Store, *, configured: Keyring | None, candidate: bytes, migrates: bool) -> Flow[Keyring]:
    """Return the secrets to work with, or refuse to start.

    Another secret would look for every key in the wrong place, find nothing, and run everything twice.
    """
    if migrates:
        yield from store.migrate()
    yield from store.verify()
    known = yield from store.secrets(None if configured is not None else candidate)
    keyring = _keyring(known, configured)
    _refuse_unless_complete(known, keyring, is_configured=configured is not None)
    for secret in keyring:
        yield from store.admit_secret(secret.check_value())
    # Read again: of two processes that start at once with different secrets, neither may miss the other's.
    known = yield from store.secrets(None)
    _refuse_unless_complete(known, keyring, is_configured=configured is not None)
    return keyring


def _keyring(known: SecretState, configured: Keyring | None) -> Keyring:
    if configured is not None:
        return configured
    if known.generated is None:
        raise ConfigError(["This store is used with a configured secret; set NEBIS_SECRET or secret= to the same one."])
    return Keyring((Secret(known.generated),))


def _refuse_unless_complete(known: SecretState, keyring: Keyring, *, is_configured: bool) -> None:
    held = {secret.check_value() for secret in keyring}
    missing = len(known.check_values - held)
    if not missing:
        return
    told = "the configured secret is not the one" if is_configured else "this process has no secret configured, but one"
    advice = "Set NEBIS_SECRET to the secret in use; to rotate, list the new one first and keep the old one: new,old."
    fault = f"{told} that records in this store were made with ({missing} missing). Starting would forget every key."
    raise ConfigError([f"{fault} {advice}"])
