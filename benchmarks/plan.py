"""How much is measured."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

GROUPS = ("cycle", "replay", "single_tx", "http", "growth", "purge", "storage", "steps", "memory", "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of one run; they are written beside its figures."""

    name: str
    rounds: int
    seconds: float
    """How long one measurement takes: long enough for a hundred commits, short enough for those compared to meet the
    same machine. What others do to it changes within half a minute, so that many short rounds say more than a few."""
    callers: tuple[int, ...]
    replay_callers: tuple[int, ...]
    peer_callers: tuple[int, ...]
    http_callers: tuple[int, ...]
    growth_rows: tuple[int, ...]
    """Rows in the tables whose claims are compared with those of an empty one."""
    purge_rows: int
    purge_seconds: float
    """How long cycles are measured with the sweep beside them: it needs a second to learn how many records come."""
    storage_cycles: int
    served_gigabytes: int
    """How much PostgreSQL has written before it is measured, so that it uses the files of its log again."""
    only: tuple[str, ...] = GROUPS
    systems: tuple[str, ...] = ()
    """Names of contenders to be measured; empty for all."""

    def sizes(self) -> dict[str, Any]:
        """Return what a reader must know to judge the figures, and which sizes are not those of a whole run."""
        whole = asdict(FULL)
        reduced = [
            f"{name.replace('_', ' ')} {_words(value)} instead of {_words(whole[name])}"
            for name, value in asdict(self).items()
            if value != whole[name] and name not in {"name", "only", "systems"}
        ]
        return {**asdict(self), "reduced": reduced}


QUICK = Plan(
    name="quick",
    rounds=3,
    seconds=0.35,
    callers=(1, 64, 256),
    replay_callers=(64,),
    peer_callers=(64,),
    http_callers=(64,),
    growth_rows=(200_000,),
    purge_rows=300_000,
    purge_seconds=1.0,
    storage_cycles=10_000,
    served_gigabytes=1,
)
FULL = Plan(
    name="full",
    rounds=13,
    seconds=0.4,
    callers=(1, 16, 64, 256),
    replay_callers=(1, 16, 64, 256),
    peer_callers=(1, 16, 64, 256),
    http_callers=(1, 16, 64, 256),
    growth_rows=(1_000_000, 10_000_000),
    purge_rows=2_500_000,
    purge_seconds=3.0,
    storage_cycles=100_000,
    served_gigabytes=4,
)


def _words(value: object) -> str:
    return "/".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def add_arguments(parser: ArgumentParser) -> None:
    """Add an option for every size."""
    parser.add_argument("--quick", action="store_true", help="about three minutes, written to quick.json")
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure this group only; may be repeated")
    parser.add_argument("--system", action="append", help="measure this contender, as nebis@postgres; may be repeated")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--purge-rows", type=int)
    parser.add_argument("--purge-seconds", type=float)
    parser.add_argument("--storage-cycles", type=int)
    parser.add_argument("--served-gigabytes", type=int)
    for name in ("callers", "replay-callers", "peer-callers", "http-callers", "growth-rows"):
        parser.add_argument(f"--{name}", type=_numbers)


def plan_of(arguments: Namespace) -> Plan:
    """Return the plan of a command line."""
    plan = QUICK if arguments.quick else FULL
    sizes = {field.name for field in fields(Plan)}
    given = {name: value for name, value in vars(arguments).items() if name in sizes and value is not None}
    given.pop("only", None)
    plan = replace(plan, **given)
    return replace(plan, only=tuple(arguments.only or GROUPS), systems=tuple(arguments.system or ()))
