"""What one request is known by, before it is anybody's attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nebis.core.fingerprint import Fingerprint
from nebis.core.identity import Identity
from nebis.core.keygrammar import Key
from nebis.core.native import twinned
from nebis.core.record import Nonce, RecordId
from nebis.core.secret import Begun
from nebis.core.verbs import Claim, Terms, make_claim


class Marks(NamedTuple):
    """Whose record a request is about and what it asks for; called, it makes the claim of an attempt.

    One tuple in place of a closure or a method: all that a waiting request holds is gone through by the garbage
    collector again and again.
    """

    identity: Identity
    tenant: str
    key: Key
    fingerprints: tuple[tuple[int, Fingerprint], ...]
    terms: Terms
    command: bytes | None

    def __call__(self, record_id: RecordId, nonce: Nonce) -> Claim:
        """Make the claim from an attempt's random marks."""
        identity, tenant, key, fingerprints, terms, command = self
        return make_claim(identity, record_id, nonce, tenant, key, fingerprints, terms, command)

    def with_command(self, command: bytes) -> Marks:
        """Return the same with the command as it is stored: only an attempt needs that, and no replay does."""
        return make_marks(Marks, self[:-1] + (command,))  # noqa: RUF005 - twice as fast.


make_marks: Final[Callable[[Any, tuple[object, ...]], Marks]] = tuple.__new__
"""Makes them straight from a tuple in the order of the fields, which is checked by nobody: few places do it."""


@twinned
class Marking:
    """Makes the marks of an operation's usual requests in one step, where it is compiled; here no request is usual.

    Usual is a random UUID of a tenant that has a place already, and a command of plain JSON without fractions, under
    the one rule and secret of the operation. What their marks are says `Subject.marks`.
    """

    __slots__ = ()

    def __init__(  # noqa: PLR0917 - as the compiled one takes them.
        self,
        kind: type[Marks],
        places: dict[str, Begun[Identity]],
        begun: Begun[Fingerprint],
        version: int,
        before: bytes,
        behind: bytes,
        terms: Terms,
    ) -> None:
        """Take what fingerprints begin with and are counted as, and what stands around the form of a command."""

    def of(self, key: str, tenant: str, command: object) -> Marks | None:
        """Return the marks of a request; None where it is not usual."""
