"""How much of each layer a size asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is run in one round, and how much must have been seen for the proof to count."""

    name: str
    model: str
    """`none`; `all` worlds and one of them with a crash more; or all of them `deeper`."""
    seeds: int
    has_kills: bool
    cut_every: int
    """One protocol message of so many is cut after, on every driver."""
    soak_requests: int
    soak_faults: int
    failovers: int
    storm_messages: int
    planted_part: int
    """One planted bug of so many is tried, others with another commit."""
    has_torture: bool
    has_peers: bool
    has_mutation: bool
    wanted: dict[str, int]
    """What must have been seen at least."""


SIZES = {
    size.name: size
    for size in (
        # The test suite searches the model and plays the kill matrix already.
        Size(
            name="smoke",
            model="none",
            seeds=1_500,
            has_kills=False,
            cut_every=16,
            soak_requests=600,
            soak_faults=4,
            failovers=0,
            storm_messages=0,
            planted_part=12,
            has_torture=False,
            has_peers=False,
            has_mutation=False,
            wanted={"simulation_seeds": 1_500, "protocol_cuts": 12, "soak_requests": 600},
        ),
        Size(
            name="ci",
            model="all",
            seeds=10_000,
            has_kills=True,
            cut_every=2,
            soak_requests=12_000,
            soak_faults=8,
            failovers=2,
            storm_messages=10_000,
            planted_part=3,
            has_torture=True,
            has_peers=False,
            has_mutation=False,
            wanted={
                "model_states": 1_500_000,
                "simulation_seeds": 10_000,
                "kills": 480,
                "protocol_cuts": 84,
                "soak_requests": 12_000,
                "soak_faults": 8,
                "failovers": 2,
                "storm_messages": 10_000,
            },
        ),
        # One round of a night: rounds add up, for each layer as long as its code is the same.
        Size(
            name="night",
            model="deeper",
            seeds=60_000,
            has_kills=True,
            cut_every=1,
            soak_requests=60_000,
            soak_faults=60,
            failovers=20,
            storm_messages=10_000,
            planted_part=1,
            has_torture=True,
            has_peers=True,
            has_mutation=True,
            wanted={
                "model_states": 20_000_000,
                "simulation_seeds": 300_000,
                "kills": 10_000,
                "protocol_cuts": 180,
                "soak_requests": 60_000,
                "soak_faults": 60,
                "failovers": 100,
                "storm_messages": 10_000,
                "peers": 3,
                "mutation_score": 95,
            },
        ),
    )
}
