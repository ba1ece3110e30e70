"""The layers: each fails differently, and each says what it saw, piece by piece."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nebis.testing.modelcheck import CONFIGURATIONS, Configuration, check
from nebis.testing.modelcheck.configurations import named
from nebis.testing.prove.evidence import Record, Seen
from nebis.testing.prove.running import passed, run, told
from nebis.testing.prove.sizes import Size
from nebis.testing.simulate.campaign import play_all

KILLS = {
    ("tests.matrix.test_kill", "test_cell"): 1,
    ("tests.matrix.test_kill", "test_successor_that_dies_at_the_same_point_has_a_successor_too"): 2,
    ("tests.matrix.test_replies", "test_no_that_nobody_lived_to_hear_is_asked_for_again_where_that_is_safe"): 1,
    ("tests.matrix.test_stop", "test_cell"): 1,
    ("tests.matrix.test_stop", "test_owner_that_is_frozen_inside_its_transaction_is_not_taken_over"): 1,
    ("tests.matrix.test_worker", "test_cell"): 1,
}
"""How many processes one cell of the matrix kills or freezes."""
SEEDS_PER_PIECE = 1_000
FAILOVERS_PER_PIECE = 5
PLANTED_PIECES = 6
MUTATION_PIECES = 8
"""Pieces are written down as they end: whoever ends a night early loses one of these at most."""
LARGE_WORLD = 80_000
"""A world with so many states grows by one trouble at a time; with two, some would not fit into memory."""
_BUDGETS = {"crash": "crashes", "late message": "late", "request": "starts"}
KIT = {
    "reference service": "tests/testing/torture/test_reference_service.py",
    "servers that it must fail": "tests/testing/torture/test_servers.py",
}
PEERS = "tests/testing/torture/peers"
_INSTALL_PEERS = """
from tests.testing.torture.peers.environment import interpreter_of
from tests.testing.torture.peers.peers import PEERS
for peer in PEERS:
    interpreter_of(peer)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One run of a layer."""

    size: Size
    root: Path
    processes: int
    rounds: int
    record: Record
    """What the layer saw before; it goes on from there."""

    def left(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces that are not done yet."""
        return [piece for piece in pieces if piece not in self.record.done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What it does, what it counts, and which pieces it consists of, if these have names."""

    run: Callable[[Campaign], Iterator[Seen]]
    counts: tuple[str, ...] = ()
    pieces: Callable[[Size], Sequence[str]] = lambda _: ()

    def missing(self, size: Size, done: Sequence[str], totals: dict[str, int]) -> list[str]:
        """Return what is still to be seen."""
        numbers = [name for name in self.counts if totals.get(name, 0) < size.wanted.get(name, 0)]
        pieces = [piece for piece in self.pieces(size) if piece not in done]
        return [f"{name}: {totals.get(name, 0)} of {size.wanted[name]}" for name in numbers] + pieces


def worlds(size: Size) -> list[Configuration]:
    """Return which worlds are searched."""
    if size.model == "none":
        return []
    if size.model == "all":
        fenced = named("fenced")
        return [*CONFIGURATIONS, replace(fenced, name="fenced, one crash more", crashes=fenced.crashes + 1)]
    return [deeper for world in CONFIGURATIONS for deeper in _deeper(world)]


def _deeper(world: Configuration) -> list[Configuration]:
    if world.at_least < LARGE_WORLD:
        return [_with_more(world, "crash", "late message"), _with_more(world, "request")]
    return [_with_more(world, each) for each in _BUDGETS]


def _with_more(world: Configuration, *what: str) -> Configuration:
    budgets: dict[str, Any] = {_BUDGETS[each]: getattr(world, _BUDGETS[each]) + 1 for each in what}
    return replace(world, name=f"{world.name}; one more {' and '.join(what)}", **budgets)


def model(campaign: Campaign) -> Iterator[Seen]:
    """Search every order of faults of small worlds."""
    left = [world for world in worlds(campaign.size) if world.name not in campaign.record.done]
    pool = ProcessPoolExecutor(max_workers=campaign.processes)
    try:
        largest_first = sorted(left, key=lambda world: -world.at_least)
        for searched in as_completed([pool.submit(check, world) for world in largest_first]):
            report = searched.result()
            broken = report.result.violations.total() - report.result.poisoned
            yield Seen(
                counts={
                    "model_states": report.result.states,
                    "model_violations": broken,
                    "poisoned_states": report.result.poisoned,
                },
                failures=list(report.stories),
                done=report.result.configuration.name,
            )
    finally:
        pool.shutdown(cancel_futures=True)


def simulation(campaign: Campaign) -> Iterator[Seen]:
    """Play seeds, from the first that was not played yet."""
    first = campaign.record.counts.get("simulation_seeds", 0)
    seen = Seen()
    for tally in play_all(first, campaign.rounds * campaign.size.seeds, processes=campaign.processes):
        counts = {"simulation_seeds": tally.seeds, "simulation_violations": len(tally.stories)}
        seen.add(Seen(counts=counts, failures=list(tally.stories)))
        if seen.counts["simulation_seeds"] >= SEEDS_PER_PIECE:
            yield seen
            seen = Seen()
    if seen.counts:
        yield seen


def kills(campaign: Campaign) -> Iterator[Seen]:
    """Kill and freeze real processes at every point."""
    for _ in range(campaign.rounds if campaign.size.has_kills else 0):
        seen = Seen()
        names = passed(campaign.root, seen, "tests/matrix", processes=campaign.processes)
        if names:
            seen.counts["kills"] = sum(KILLS.get((module, test.partition("[")[0]), 0) for module, test in names)
        yield seen


def cuts(campaign: Campaign) -> Iterator[Seen]:
    """Cut connections after each protocol message."""
    for _ in range(campaign.rounds):
        yield told(campaign.root, "tests.testing.prove.cuts", "--every", campaign.size.cut_every)


def soak(campaign: Campaign) -> Iterator[Seen]:
    """Load both stores while things go wrong."""
    size = campaign.size
    for turn in range(campaign.rounds):
        marks = ("--requests", size.soak_requests, "--faults", size.soak_faults)
        yield told(campaign.root, "tests.testing.prove.soak", *marks, "--seed", campaign.record.pieces + turn + 1)


def failover(campaign: Campaign) -> Iterator[Seen]:
    """Lose primaries under load; and once without a synchronous standby, which must be noticed."""
    for _ in range(campaign.rounds if campaign.size.failovers else 0):
        yield told(campaign.root, "tests.failover", "--control", "--json")
        for at in range(0, campaign.size.failovers, FAILOVERS_PER_PIECE):
            number = min(FAILOVERS_PER_PIECE, campaign.size.failovers - at)
            yield told(campaign.root, "tests.failover", "--count", number, "--json")


def storm(campaign: Campaign) -> Iterator[Seen]:
    """Kill relays, consumers and a broker while messages pass through them."""
    messages = campaign.size.storm_messages
    for _ in range(campaign.rounds if messages else 0):
        seen, settings = Seen(), {"NEBIS_STORM_MESSAGES": str(messages)}
        if passed(campaign.root, seen, "tests/messaging/test_storm.py", processes=0, settings=settings):
            seen.counts["storm_messages"] = messages
        yield seen


def planted(campaign: Campaign) -> Iterator[Seen]:
    """Plant known bugs: a layer that does not see the one that it must see is blind."""
    part = campaign.size.planted_part
    if part > 1:
        yield told(campaign.root, "tests.planted", "--part", part, "--turn", int(campaign.record.commit[:8], 16) % part)
        return
    for piece in campaign.left(_parts(PLANTED_PIECES)):
        yield _named(piece, told(campaign.root, "tests.planted", "--part", PLANTED_PIECES, "--turn", _turn(piece)))


def torture(campaign: Campaign) -> Iterator[Seen]:
    """Run the torture kit against the reference service, servers that it must fail, and other libraries."""
    for piece in campaign.left(_kit(campaign.size)):
        seen = Seen()
        if piece == "peers":
            installed = run([sys.executable, "-c", _INSTALL_PEERS], campaign.root)
            if installed.returncode:
                yield Seen(breakdowns=[f"other libraries could not be installed:\n{installed.stderr[-2000:]}"])
                continue
            settings = {"NEBIS_PEERS": "1"}
            names = passed(campaign.root, seen, PEERS, processes=campaign.processes, settings=settings)
            seen.counts["peers"] = sum("[" in test for _, test in names)
        else:
            names = passed(campaign.root, seen, KIT[piece], processes=campaign.processes)
        seen.counts["torture_checks"] = len(names)
        yield _named(piece, seen)


def mutation(campaign: Campaign) -> Iterator[Seen]:
    """Change the core in every small way, and see how often its own tests notice."""
    for piece in campaign.left(_mutations(campaign.size)):
        marks = ("--part", MUTATION_PIECES, "--turn", _turn(piece), "--processes", campaign.processes)
        yield _named(piece, _scored(told(campaign.root, "tests.planted.mutation", *marks)))


def _scored(seen: Seen) -> Seen:
    """Count what the score is made of, since scores of pieces do not add up."""
    if "mutants" not in seen.counts:
        return Seen(breakdowns=seen.breakdowns + seen.failures)
    # Those that behave like the true code survive for a reason that is listed: no test could kill them.
    survived = sum(failure.startswith("survived:") for failure in seen.failures)
    mutants, killed = seen.counts["mutants"], seen.counts["mutants_killed"]
    counts = {"mutants": mutants, "mutants_killed": killed, "mutants_killable": killed + survived}
    return replace(seen, counts=counts)


def _kit(size: Size) -> list[str]:
    return [*KIT, *(["peers"] if size.has_peers else [])] if size.has_torture else []


def _mutations(size: Size) -> list[str]:
    return _parts(MUTATION_PIECES) if size.has_mutation else []


def _parts(number: int) -> list[str]:
    return [f"part {at} of {number}" for at in range(1, number + 1)]


def _turn(piece: str) -> int:
    return int(piece.split()[1]) - 1


def _named(piece: str, seen: Seen) -> Seen:
    """Call a piece done, unless nothing could be seen."""
    return seen if seen.breakdowns else replace(seen, done=piece)


LAYERS: dict[str, Layer] = {
    "model check": Layer(
        run=model, counts=("model_states",), pieces=lambda size: [world.name for world in worlds(size)]
    ),
    "simulation": Layer(run=simulation, counts=("simulation_seeds",)),
    "kill matrix": Layer(run=kills, counts=("kills",)),
    "protocol cuts": Layer(run=cuts, counts=("protocol_cuts",)),
    "soak": Layer(run=soak, counts=("soak_requests", "soak_faults")),
    "failover": Layer(run=failover, counts=("failovers",)),
    "message storm": Layer(run=storm, counts=("storm_messages",)),
    "planted bugs": Layer(run=planted, pieces=lambda size: _parts(PLANTED_PIECES) if size.planted_part == 1 else []),
    "torture kit": Layer(run=torture, counts=("peers",), pieces=_kit),
    "mutation": Layer(run=mutation, counts=("mutation_score",), pieces=_mutations),
}
