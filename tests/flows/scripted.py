"""A world that answers what its script says and remembers everything that it was asked."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from nebis.core.answers import Answer, Kept, Locked
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.flow import Ask, Flow, drive
from nebis.ports.asks import (
    Apply,
    AwaitChange,
    Barrier,
    CallEffect,
    Draw,
    Elapsed,
    Find,
    KeepLate,
    KeepTrying,
    MakeClaim,
    Pause,
    Raised,
    Returned,
    RunHandler,
    Settled,
    Tell,
    TransactionApply,
    TransactionBegin,
    TransactionCommit,
    TransactionHold,
    TransactionIsSame,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.inbox import AskInbox
from nebis.ports.observer import Event
from nebis.ports.store import StoreFailure
from nebis.ports.velocity import ChargeVelocity
from nebis.stores.memory import MemoryStore
from tests.flows.specimens import DRAWN, NOW

T = TypeVar("T")
A = TypeVar("A", bound=Ask[Any])
Line: TypeAlias = Answer | Locked | StoreFailure | Callable[[Verb], Answer | Locked]


class ScriptedWorld:
    """Answers verbs from a script, a line for each; the last line is repeated for ever. Time passes only in pauses."""

    def __init__(
        self,
        *script: Line,
        found: Record | None = None,
        handler: Callable[[Record], object] = lambda _: "done",
        admits: bool = True,
        says: Mapping[type[Ask[Any]], Sequence[object]] = MappingProxyType({}),
    ) -> None:
        self._script = list(script) or [Kept()]
        self._found = found
        self._handler = handler
        self._admits = admits
        self._says: dict[type[Ask[Any]], list[object]] = {TransactionIsSame: [True], TransactionSettle: [True]}
        self._says.update({kind: list(lines) for kind, lines in says.items()})
        self.clock_seconds = 0.0
        self.inbox = MemoryStore(clock=lambda: NOW)
        self.asked: list[Ask[Any]] = []
        self.verbs: list[Verb] = []

    def run(self, flow: Flow[T]) -> T:
        return drive(flow, self.perform)

    def perform(self, ask: Ask[Any]) -> Any:  # noqa: C901 - a case for each kind of ask.
        self.asked.append(ask)
        match ask:
            case Apply() | TransactionApply() | TransactionSettle():
                return self._say(ask)
            case (
                TransactionBegin()
                | TransactionHold()
                | TransactionIsSame()
                | TransactionCommit()
                | Barrier()
                | ChargeVelocity()
            ):
                return _next(self._says.get(type(ask), [None]))
            case AskInbox():
                _next(self._says.get(AskInbox, [None]))
                return drive(ask.act(self.inbox), self.inbox.perform)
            case Find():
                _next(self._says.get(Find, [None]))
                return self._found
            case MakeClaim():
                return ask.make(DRAWN.record_id, DRAWN.nonce)
            case Draw():
                return DRAWN
            case Elapsed():
                return self.clock_seconds
            case Pause():
                self.clock_seconds += ask.seconds
            case AwaitChange():
                self.clock_seconds += ask.seconds
                return self._admits
            case RunHandler():
                return self._run_handler(ask.record)
            case CallEffect():
                return _called(ask)
            case KeepLate() | KeepTrying() | Tell() | TransactionRollback():
                return None
            case _:
                raise AssertionError(f"no flow asks for {type(ask).__name__}")
        return None

    def of(self, kind: type[A]) -> list[A]:
        """Return what was asked of one kind, in order."""
        return [ask for ask in self.asked if isinstance(ask, kind)]

    @property
    def told(self) -> list[Event]:
        return [ask.event for ask in self.of(Tell)]

    def _say(self, ask: Apply | TransactionApply | TransactionSettle) -> Answer | Locked | None:
        if isinstance(ask, TransactionSettle) and _next(self._says[TransactionSettle]) is None:
            return None
        self.verbs.append(ask.verb)
        line: Answer | Locked | Callable[[Verb], Answer | Locked] = _next(self._script)
        return line(ask.verb) if callable(line) else line

    def _run_handler(self, record: Record) -> Returned[object] | Raised | Settled:
        try:
            value = self._handler(record)
            return value if isinstance(value, Settled) else Returned(value)
        except Exception as error:  # noqa: BLE001 - as the runtimes do.
            return Raised(error)


def _called(ask: CallEffect) -> Returned[Any] | Raised:
    try:
        return Returned(ask.call(ask.effect))
    except Exception as error:  # noqa: BLE001 - as the runtimes do.
        return Raised(error)


def _next(lines: list[Any]) -> Any:
    line = lines.pop(0) if len(lines) > 1 else lines[0]
    if isinstance(line, StoreFailure):
        raise line
    return line
