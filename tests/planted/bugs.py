"""Known mistakes, each with a name, and which layers must see it."""

from collections.abc import Callable
from dataclasses import dataclass

from nebis.testing.modelcheck import MUTANTS, Mutant
from nebis.testing.modelcheck.sabotage import blind_takeover, complete_overwrites, fences_start_over, guard_is_the_state
from nebis.testing.simulate.store import Transition
from tests.planted import sowing

STORE = ("tests/stores/test_conformance.py", "-k", "sqlite")
HTTP = ("tests/integrations/test_asgi.py", "-k", "sqlite")
SEEDS = 2_000
"""A planted bug that must be found by simulation is found within so many seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One mistake that somebody made, or could make."""

    name: str
    lesson: str
    """Where it was seen, or which fault it leads to."""
    mutant: Mutant | None = None
    """The same mistake in the model."""
    transition: Transition | None = None
    """The state machine with the mistake in it, for the simulation."""
    plant: Callable[[], None] | None = None
    """Puts the mistake into the code that runs."""
    simulated: bool = False
    store: str | None = None
    """Which tests of the store suite must see it, as pytest selects them."""
    http: str | None = None
    """Which tests of the HTTP suite must see it."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that must see it."""
        seen = {
            "model": self.mutant is not None,
            "simulation": self.simulated,
            "store suite": self.store is not None,
            "http suite": self.http is not None,
        }
        return tuple(layer for layer, is_named in seen.items() if is_named)


_SIMULATED: dict[str, Transition] = {
    "blind takeover of dirty opaque": blind_takeover,
    "COMPLETE may overwrite": complete_overwrites,
    "fences start over and are the only guard": fences_start_over,
    "old life's owner is not fenced": guard_is_the_state,
}
_ALSO_SIMULATED = frozenset(
    {
        "release when dirty",
        "purge of what is not at rest",
        "success only: own timed-out call ignored",
        "fingerprint not compared",
    }
)


def _of_model(mutant: Mutant) -> Bug:
    is_simulated = mutant.name in _ALSO_SIMULATED or mutant.name in _SIMULATED
    assert mutant.expected is not None
    return Bug(
        name=mutant.name,
        lesson=mutant.expected.value,
        mutant=mutant,
        transition=mutant.transition if is_simulated else None,
        simulated=is_simulated,
    )


_IN_CODE = (
    Bug(
        name="unique index dropped",
        lesson="F021: two claims of one key both insert",
        plant=sowing.no_unique_index,
        store="TestClaim or TestConcurrency",
    ),
    Bug(
        name="SQL: COMPLETE without its fence",
        lesson="F050: a zombie completes after its successor (AWS Powertools, River)",
        plant=sowing.sql_without_fence,
        store="TestComplete",
    ),
    Bug(
        name="owner's guard without the fence",
        lesson="F050: whoever once held the record may write",
        plant=sowing.owner_without_fence,
        simulated=True,
        store="TestComplete or TestRenew",
    ),
    Bug(
        name="body comparison off",
        lesson="F105: another command is answered with the first one's outcome",
        plant=sowing.no_comparison,
        simulated=True,
        store="TestClaim",
        http="TestBodies or TestKeys or TestReplay",
    ),
    Bug(
        name="tenant left out of the identity",
        lesson="SEC01: one tenant reads another's answer",
        plant=sowing.identity_without_tenant,
        simulated=True,
        http="TestTenants",
    ),
    Bug(
        name="running twin runs again",
        lesson="F020: a lock that is not asked; two requests at once both run",
        plant=sowing.running_twin_runs,
        simulated=True,
        store="TestClaim",
        http="TestRaces",
    ),
    Bug(
        name="answered before it is stored",
        lesson="F006: a crash after the answer forgets it",
        plant=sowing.answer_unstored,
        simulated=True,
    ),
    Bug(
        name="loser answers with its own result",
        lesson="I11: two clients hold two different receipts",
        plant=sowing.loser_answers,
        simulated=True,
    ),
    Bug(
        name="lost COMMIT taken for done",
        lesson="F013: success is told, and nothing was committed",
        plant=sowing.lost_commit_is_done,
        simulated=True,
    ),
    Bug(
        name="timeout of an opaque call told as a rejection",
        lesson="Brandur's 503: stored as finished, while the charge went through",
        plant=sowing.timeout_is_a_no,
        simulated=True,
    ),
    Bug(
        name="call before its intent",
        lesson="F004: a crash leaves no trace of the call",
        plant=sowing.call_before_intent,
        simulated=True,
    ),
    Bug(
        name="downstream key per attempt",
        lesson="F064: Dapr's task execution id changes on every retry",
        plant=sowing.key_per_attempt,
        simulated=True,
    ),
    Bug(
        name="undo forgotten after turning back",
        lesson="a rejection is told while a reservation stands",
        plant=sowing.no_undo,
        simulated=True,
    ),
    Bug(
        name="doubt without an end",
        lesson="snok/asgi-idempotency-header: a crash poisons the key for ever",
        plant=sowing.endless_doubt,
        simulated=True,
    ),
    Bug(
        name="reaper eats what is in progress",
        lesson="rocket-rides-atomic: reaped by age, whatever its state",
        plant=sowing.reaper,
        simulated=True,
        store="TestAgeing",
    ),
)

BUGS: tuple[Bug, ...] = (*_IN_CODE, *(_of_model(mutant) for mutant in MUTANTS if mutant.expected is not None))
