"""Open a store: bring its schema up to date and make sure that this process knows every secret in use."""

from __future__ import annotations

from nebis.core.secret import Keyring, Secret, Secrets
from nebis.errors import ConfigError
from nebis.flow import Flow
from nebis.ports.store import SecretState, Store


def start(store: Store, *, configured: Keyring | None, candidate: bytes, migrates: bool) -> Flow[Secrets]:
    """Return the secrets to work with, or refuse to start.

    Another secret could not recognise the commands of records that are already there, and would call every honest
    retry a different request.
    """
    if migrates:
        yield from store.migrate()
    yield from store.verify()
    known = yield from store.secrets(candidate)
    assert known.generated is not None  # The store keeps the first candidate that it is given.
    own = Secret(known.generated)
    keyring = _keyring(own, known, configured)
    _refuse_unless_complete(known, keyring, is_configured=configured is not None)
    for secret in keyring:
        yield from store.admit_secret(secret.check_value())
    # Read again: of two processes that start at once with different secrets, neither may miss the other's.
    known = yield from store.secrets(None)
    _refuse_unless_complete(known, keyring, is_configured=configured is not None)
    return Secrets(identity=own, keyring=keyring)


def _keyring(own: Secret, known: SecretState, configured: Keyring | None) -> Keyring:
    """Return the configured secrets, and the store's own as the oldest if it was ever used without configuration."""
    if configured is None:
        return Keyring((own,))
    if own.check_value() in known.check_values and own not in configured.secrets:
        return Keyring((*configured.secrets, own))
    return configured


def _refuse_unless_complete(known: SecretState, keyring: Keyring, *, is_configured: bool) -> None:
    held = {secret.check_value() for secret in keyring}
    missing = len(known.check_values - held)
    if not missing:
        return
    told = "another secret than the configured one" if is_configured else "no secret is configured, but one"
    advice = "Set NEBIS_SECRET to the secret in use; to rotate, list the new one first and keep the old one: new,old."
    fault = f"{told} was used for records in this store ({missing} missing); starting would refuse honest retries."
    raise ConfigError([f"{fault} {advice}"])
