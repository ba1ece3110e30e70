"""One key on a store under test, led into a situation and asked something there."""

from __future__ import annotations

from nebis.core.answers import Answer, Refusal, Refused
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.testing.conformance.moves import Case, Move
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.situations import SITUATIONS, Passing
from nebis.testing.conformance.specimens import START_US
from nebis.testing.conformance.tour import explored
from nebis.testing.conformance.twin import Hit, Twin


class Stage:
    """A twin with one key and a clock that only the test moves; every step is compared with the state machine."""

    def __init__(self, twin: Twin, *, key: str = "key") -> None:
        self.twin = twin
        self.case = Case(key)
        self.now = START_US

    @property
    def record(self) -> Record:
        """Return the record as both sides have it; fail if there is none."""
        assert self.case.record is not None
        return self.case.record

    def enter(self, situation: str) -> Record | None:
        """Lead the key into a situation by the very verbs that lead there."""
        for item in SITUATIONS[situation]:
            if isinstance(item, Passing):
                self.wait(item.us)
            else:
                self.ask(item)
        return self.case.record

    def wait(self, us: int) -> None:
        """Let time pass."""
        self.now += us

    def ask(self, move: Move | str) -> Answer:
        """Make a move, or the probe of that name."""
        return self.send((PROBES[move] if isinstance(move, str) else move)(self.case))

    def send(self, verb: Verb) -> Answer:
        """Send this very verb, perhaps not for the first time."""
        answer = self.twin.ask(verb, now=self.now)
        self.case.became(self.twin.records.get(self.case.identity))
        return answer


def check_refusal(twin: Twin, verb: type[Verb], reason: Refusal) -> None:
    """Go where the verb is refused for that reason, and see that nothing is changed and that the store says why."""
    scenario = explored()[Hit(verb.__name__, reason.value)][0]
    stage = Stage(twin)
    before = stage.enter(scenario.situation)

    answer = stage.ask(scenario.probe)

    assert answer == Refused(reason=reason, found=before)
    assert twin.connection.find(stage.case.identity) == before
