"""Which records this process saw end: a hint that a claim will be a replay. Nothing is ever decided by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from nebis.core.answers import Answer, Kept, Locked, Replay
from nebis.core.verbs import Claim, Complete, Verb

LONGEST_MEMORY: Final = 20_000
"""About two megabytes, of which the newer half is always there. Retries come soon after the first answer, if at all."""


class SeenEnds:
    """The identities of the records that ended last, as far as this process knows. Threads may share one.

    Kept in two halves, of which the older one is dropped whole: to drop the oldest of a single dictionary one by one,
    each time its start must be searched behind all that was dropped before.
    """

    def __init__(self, longest: int = LONGEST_MEMORY) -> None:
        self._longest_half = longest // 2
        self._newer: dict[bytes, None] = {}
        self._older: dict[bytes, None] = {}

    def knows(self, identity: bytes) -> bool:
        """Tell whether this record was seen to end."""
        return identity in self._newer or identity in self._older

    __contains__ = knows

    def expects_replays(self, verbs: Iterable[Verb]) -> bool:
        """Tell whether all of these are claims of records that ended: then reading first saves a trip."""
        newer, older = self._newer, self._older
        for verb in verbs:
            if type(verb) is not Claim or (verb.identity not in newer and verb.identity not in older):
                return False
        return True

    def learn(self, verbs: Sequence[Verb], answers: Sequence[Answer | Locked]) -> None:
        """Remember the records that have ended, by what was answered to these verbs."""
        ended: list[bytes] = []
        for verb, answer in zip(verbs, answers, strict=True):
            if type(verb) is Complete and type(answer) is Kept:
                ended.append(verb.ownership.identity)
            elif type(answer) is Replay and type(verb) is Claim:
                ended.append(verb.identity)
        if ended:
            self.note(ended)

    def note(self, identities: Sequence[bytes]) -> None:
        """Remember records that have ended."""
        if len(self._newer) + len(identities) > self._longest_half and not self._newer.keys() >= set(identities):
            # Another thread may be here too; then a little more is forgotten.
            self._older, self._newer = self._newer, {}
        self._newer.update(dict.fromkeys(identities))
