"""One failover: load, the loss of the primary, clients that come back with their keys, and what all of it proves."""

import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from nebis import InDoubt, InFlight, NotYet, Rejected
from nebis.core.record import State
from nebis.testing.bank import Bank
from nebis.testing.history import History, check
from tests.failover.pair import Pair, paired
from tests.failover.service import KINDS, TABLE, AsyncService, BlockingService, Receipt, open_service, tenant_of

CLIENTS = 6
BROKEN_BY_LOSS = frozenset({"H1", "H4", "H6"})
"""The rules that break if the standby does not have what was acknowledged."""
_RETRY_SECONDS = 60.0
_PAUSE_SECONDS = 0.02


@dataclass(slots=True)
class Clients:
    """Callers that each have one key after another answered, and write down what they were told."""

    service: BlockingService | AsyncService
    told: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """The kind of work of every key that was sent."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_over: bool = False

    @property
    def answers(self) -> int:
        return sum(entry["type"] == "ok" for entry in self.told)

    @property
    def under_way(self) -> int:
        return sum(1 if entry["type"] == "invoke" else -1 for entry in self.told)

    def wait_for(self, answers: int) -> None:
        """Wait until as many calls were answered with a success."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.answers >= answers, _RETRY_SECONDS), "nobody is answered"

    def run(self) -> None:
        """Be one caller until it is over; what was begun is brought to its end even then."""
        while not self.is_over:
            key = uuid4().hex
            self.keys[key] = random.choice(KINDS)
            deadline = time.monotonic() + _RETRY_SECONDS
            while not self.call(key):
                assert time.monotonic() < deadline, f"{key} was never answered"
                time.sleep(_PAUSE_SECONDS)  # As a client backs off: it has nothing to wait for.

    def call(self, key: str) -> bool:
        """Call once; tell whether it was a success."""
        call = uuid4().hex
        self._tell("invoke", key, call, command=key, nonce=key)
        try:
            receipt = self.service.call(self.keys[key], key)
        except Exception as error:  # noqa: BLE001 - whatever a client is told is what the history is about.
            self._tell_error(key, call, error)
            return False
        self._tell_receipt(key, call, receipt)
        return True

    def _tell_receipt(self, key: str, call: str, receipt: Receipt) -> None:
        digest = hashlib.sha256(json.dumps(asdict(receipt), sort_keys=True).encode()).hexdigest()
        self._tell("ok", key, call, digest=digest, body_tenant=receipt.tenant, body_nonce=receipt.key)

    def _tell_error(self, key: str, call: str, error: Exception) -> None:
        if isinstance(error, Rejected):
            self._tell("fail", key, call, code=error.code)
        elif isinstance(error, InFlight):
            self._tell("refused", key, call, code=error.code)
        else:
            code = error.code if isinstance(error, InDoubt | NotYet) else type(error).__name__
            self._tell("info", key, call, code=code)

    def _tell(self, kind: str, key: str, call: str, **marks: Any) -> None:
        entry = {"type": kind, "tenant": tenant_of(key), "key": key, "call": call, "at": time.time_ns() // 1000}
        with self.changed:
            self.told.append({**entry, **marks})
            self.changed.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one failover proves."""

    keys: int
    acknowledged: int
    """Keys that had been answered before the primary was lost."""
    under_way: int
    """Calls that had begun and were not answered when it was lost."""
    violations: list[str]


def prepare(pair: Pair, bank: Bank) -> None:
    """Create all tables."""
    pair.ask(TABLE)
    with open_service("psycopg", pair.url, bank):
        pass


def fail_over(pair: Pair, bank: Bank, *, driver: str, before: int = 40, after: int = 30) -> Verdict:
    """Lose the primary once so many calls were answered under load, have as many more answered, and judge it all."""
    with open_service(driver, pair.url, bank) as service:
        clients = Clients(service)
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(clients.run) for _ in range(CLIENTS)]
            with _ending(clients):
                clients.wait_for(before)
                acknowledged, under_way = clients.answers, clients.under_way
                pair.fail_over()
                clients.wait_for(clients.answers + after)
            for caller in running:
                caller.result()
    # Another instance, which knows nothing but what the promoted server knows, is asked for everything again.
    with open_service(driver, pair.url, bank) as service:
        clients.service = service
        unanswered = [f"{key} is not answered" for key in clients.keys if not clients.call(key)]
        history = _history(clients, service, bank, pair)
    violations = [str(violation) for violation in check(history)] + unanswered
    return Verdict(keys=len(clients.keys), acknowledged=acknowledged, under_way=under_way, violations=violations)


def lose_primaries(
    bank: Bank, drivers: Sequence[str], count: int, watch: Callable[[str, Verdict], None] = lambda *_: None
) -> list[Verdict]:
    """Fail over to a synchronous standby so often, each time from the server that was promoted last."""
    verdicts = []
    with paired() as pair:
        prepare(pair, bank)
        for number in range(count):
            if number:
                pair.pair_again()
            pair.require_standby()
            driver = drivers[number % len(drivers)]
            verdicts.append(fail_over(pair, bank, driver=driver))
            watch(driver, verdicts[-1])
    return verdicts


def lose_acknowledged(bank: Bank) -> Verdict:
    """Fail over to an asynchronous standby that nothing reached any more: what was acknowledged happens again."""
    with paired() as pair:
        prepare(pair, bank)
        pair.part()
        return fail_over(pair, bank, driver="psycopg")


@contextmanager
def _ending(clients: Clients) -> Iterator[None]:
    try:
        yield
    finally:
        clients.is_over = True


def _history(clients: Clients, service: BlockingService | AsyncService, bank: Bank, pair: Pair) -> History:
    """Put together what clients were told, what happened and what the store holds."""
    history = History()
    for entry in clients.told:
        history.add(entry)
    effects = Counter(str(entry["reference"]) for entry in bank.ledger())
    effects.update(str(key) for (key,) in pair.ask("SELECT key FROM payments"))
    for key in clients.keys:
        place = {"tenant": tenant_of(key), "key": key, "at": 0}
        for _ in range(effects[key]):
            history.add({"type": "effect", **place})
        for record in service.records(key):
            marks = {**place, "record": str(record.record_id)}
            history.add({**marks, "type": "record", "state": record.state, "reason": record.doubt_reason})
            if record.state is State.COMPLETED:
                history.add({**marks, "type": "completed", "at": record.completed_at})
    return history


def broken_rules(verdict: Verdict) -> set[str]:
    """Return the names of the rules that were broken."""
    return {violation.partition(" ")[0] for violation in verdict.violations}
