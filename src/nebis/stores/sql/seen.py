"""Which records this process saw end: a hint that a claim will be a replay. Nothing is ever decided by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nebis.core.answers import Answer, Kept, Locked, Replay
from nebis.core.verbs import Claim, Complete, Verb, identity_of

LONGEST_MEMORY: Final = 10_000
"""About a megabyte. Retries come soon after the first answer, if they come at all."""


class SeenEnds:
    """The identities of the records that ended last, as far as this process knows. Threads may share one."""

    def __init__(self, longest: int = LONGEST_MEMORY) -> None:
        self._longest = longest
        self._identities: dict[bytes, None] = {}

    def expects_replays(self, verbs: Iterable[Verb]) -> bool:
        """Tell whether all of these are claims of records that ended: then reading first saves a trip."""
        return all(isinstance(verb, Claim) and verb.identity in self._identities for verb in verbs)

    def learn(self, verb: Verb, answer: Answer | Locked) -> None:
        """Remember a record that has ended."""
        if isinstance(answer, Replay) or (isinstance(verb, Complete) and isinstance(answer, Kept)):
            self._identities[identity_of(verb)] = None
            while len(self._identities) > self._longest:
                # Another thread may have been here first.
                self._identities.pop(next(iter(self._identities), b""), None)
