"""What both façades are made of: where the store is, and which operations it protects."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from nebis.consuming.intake import Dedup, Intake, declare_consumer
from nebis.core.fingerprint import FingerprintVersions
from nebis.core.identity import Scope
from nebis.core.issued import RANDOM_BYTES, issue_key
from nebis.core.record import EffectsMode
from nebis.core.secret import Keyring, Secrets
from nebis.declaration import Declaration, PolicyOptions, declare
from nebis.effects import Query, Undo
from nebis.errors import BodyRefused, ConfigError
from nebis.flow import Flow
from nebis.flows.request import Disposition
from nebis.flows.start import start
from nebis.ports.observer import Observer
from nebis.ports.store import Store
from nebis.subject import Subject, checked_tenant


class Named(Protocol):
    """Anything that is registered under a name."""

    @property
    def name(self) -> str:
        """Return the name under which records are stored."""
        ...


O = TypeVar("O", bound=Named)  # noqa: E741 - an operation.


class Catalogue(Generic[O]):
    """A store's location and the operations declared on it."""

    def __init__(
        self,
        location: object,
        *,
        secret: str | None = None,
        observers: Sequence[Observer] = (),
        migrate: bool = True,
        housekeeping: bool = True,
        **store_options: Any,
    ) -> None:
        """Name the store; it is opened by `with`, by `open()`, or by the first call.

        `secret` (or NEBIS_SECRET) overrides the one that the store keeps for itself. With `migrate=False` the schema
        is only checked, for processes whose database role may not change it. With `housekeeping=False` this process
        leaves it to others to expire and purge records.
        """
        self.operations: dict[str, O] = {}
        self.consumers: dict[str, Any] = {}
        """Consumers, each of which is also an operation."""
        self.endpoints: dict[str, Subject] = {}
        """Endpoints of web frameworks that this store protects, which are no operations of their own."""
        self.relays: list[Any] = []
        """Relays of this store's outbox, which a worker of this process runs too."""
        self._location = location
        self._secret = secret
        self._observers = tuple(observers)
        self._migrates = migrate
        self._keeps_house = housekeeping
        self._store_options = store_options

    def _declares(
        self,
        name: str,
        make: Callable[[Declaration[Any, Any], Callable[..., Any]], O],
        *,
        is_async: bool,
        effects: EffectsMode | None,
        scope: Scope | None,
        fingerprint: FingerprintVersions | None,
        classify: Callable[[Exception], Disposition],
        undo: Mapping[str, Undo] | None,
        queries: Mapping[str, Query] | None,
        options: PolicyOptions,
    ) -> Callable[[Callable[..., Any]], O]:
        """Return the decorator that checks a declaration and registers it."""

        def declares(handler: Callable[..., Any]) -> O:
            declaration = declare(
                name,
                handler,
                is_async=is_async,
                effects=effects,
                scope=scope,
                fingerprint=fingerprint,
                classify_error=classify,
                undo=undo,
                queries=queries,
                options=options,
            )
            self._require_free(name)
            self.operations[name] = make(declaration, handler)
            return self.operations[name]

        return declares

    def _consumes(
        self,
        name: str,
        make: Callable[[Declaration[Any, Any], Callable[..., Any]], O],
        consume: Callable[[Intake, O], Any],
        *,
        is_async: bool,
        effects: EffectsMode | None,
        dedup: Dedup | None,
        sequence: bool,
        attempts_limit: int,
        fingerprint: FingerprintVersions | None,
        undo: Mapping[str, Undo] | None,
        queries: Mapping[str, Query] | None,
        options: PolicyOptions,
    ) -> Callable[[Callable[..., Any]], Any]:
        """Return the decorator that checks a consumer and registers it, as an operation too."""

        def declares(handler: Callable[..., Any]) -> Any:
            intake = declare_consumer(
                name,
                handler,
                is_async=is_async,
                effects=effects,
                dedup=dedup,
                sequence=sequence,
                attempts_limit=attempts_limit,
                fingerprint=fingerprint,
                undo=undo,
                queries=queries,
                options=options,
            )
            self._require_free(name)
            self.operations[name] = make(intake.declaration, handler)
            self.consumers[name] = consume(intake, self.operations[name])
            return self.consumers[name]

        return declares

    def protect(self, subject: Subject) -> None:
        """Register an endpoint, under a name that nothing else has."""
        self._require_free(subject.name)
        self.endpoints[subject.name] = subject

    def issue(self, secrets: Secrets, *, operation: str, tenant: str, lifetime: timedelta) -> tuple[str, int]:
        """Issue a key to a tenant for one operation; return it and when it expires, in seconds since 1970.

        Raises `BodyRefused` for an operation that is not declared here, or does not ask for such keys.
        """
        known = self.operations.get(operation)
        subject = self.endpoints.get(operation) if known is None else getattr(known, "declaration", None)
        if subject is None or not subject.policy.issued_keys:
            raise BodyRefused("it names no operation that takes tokens")
        expires_at_seconds = int(time.time() + lifetime.total_seconds())
        token = issue_key(
            secrets.keyring.newest,
            tenant=checked_tenant(tenant),
            operation=operation,
            expires_at_seconds=expires_at_seconds,
            random=os.urandom(RANDOM_BYTES),
        )
        return token, expires_at_seconds

    def _require_free(self, name: str) -> None:
        if name in self.operations or name in self.endpoints:
            raise ConfigError(
                [f"operation {name!r} is declared twice; give each its own name, as records are stored under it"]
            )

    def _start(self, store: Store) -> Flow[Secrets]:
        """Return the flow that makes a freshly opened store ready for this process."""
        text = self._secret if self._secret is not None else os.environ.get("NEBIS_SECRET", "")
        configured = Keyring.parse(text) if text else None
        return start(store, configured=configured, candidate=os.urandom(32), migrates=self._migrates)
