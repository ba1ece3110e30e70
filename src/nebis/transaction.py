"""A handler's transaction: its own rows and the outcome of its record, committed together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from nebis.core.record import Outcome, Record
from nebis.declaration import derived_uuid
from nebis.errors import EffectInDoubt, MisuseError
from nebis.flow import drive_async
from nebis.flows.guarded import begin_guarded, commit_guarded, leave_guarded
from nebis.flows.ledger import Ledger
from nebis.flows.request import Request
from nebis.flows.settle import DOUBT_CODE_CHANGED, rendered
from nebis.flows.stage import Headers, new_message
from nebis.ports.messages import Message
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.blocking import BlockingTurn
from nebis.runtime.single import Single

T = TypeVar("T")


class _Finishable:
    """What both worlds share: result and messages, rendered to their final bytes before anything is committed."""

    _turn: BlockingTurn | AsyncTurn

    def __init__(self, target: object | None, record: Record, request: Request, ledger: Ledger | None) -> None:
        self._target = target
        self._record = record
        self._request = request
        self._ledger = ledger
        self._outcome: Outcome | None = None
        self._staged: list[Message] = []

    def _check_single(self, single: Single) -> None:
        """Refuse a second connection: what is written there would not be part of the one transaction."""
        if self._target is not None and self._target is not single.target:
            raise MisuseError(
                "A single_transaction operation has one connection: hand it to the call, as connection=, not here."
            )

    def stage(
        self,
        topic: str,
        payload: object,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002 - the word of every broker.
        headers: Headers | None = None,
        content_type: str | None = None,
        ordering_key: str | None = None,
        available_at: datetime | None = None,
    ) -> str:
        """Have a message published once this transaction has committed, and never otherwise; return its id.

        Bytes and text are sent as they are, everything else as JSON. The id is the same whichever attempt stages it:
        derived from the record and `key`, or from the record and how many messages were staged before; or it is given.
        Messages with the same ordering key are published in order. Raises `MisuseError` for what cannot be published;
        the transaction goes on as if it had not been staged.
        """
        if self._turn.transaction is None:
            raise MisuseError("The transaction has ended; stage messages inside the block.")
        _ = self._turn.outbox
        if key is not None and id is not None:
            raise MisuseError("A message has either a key, from which its id is derived, or an id; give one of them.")
        name = f"message {len(self._staged)}" if key is None else f"message key {key}"
        message = new_message(
            topic,
            payload,
            id=str(derived_uuid(self._record.record_id, name)) if id is None else id,
            headers=headers,
            content_type=content_type,
            ordering_key=ordering_key,
            available_at=available_at,
        )
        if any(message.id == staged.id for staged in self._staged):
            raise MisuseError("Two messages of this transaction have the same id; give each its own key or id.")
        self._staged.append(message)
        return message.id

    def finish(self, result: object) -> None:
        """Give the result of the operation; it is stored in the very commit of this transaction."""
        if self._outcome is not None:
            raise MisuseError("tx.finish was called twice; an operation has one result.")
        if self._ledger is not None and self._ledger.never_asked() is not None:
            # Raised in the handler, so that its rows are rolled back and the record is put in doubt.
            raise EffectInDoubt(DOUBT_CODE_CHANGED, operation_id=str(self._record.record_id))
        self._outcome = rendered(self._request, result)

    def _finished(self) -> Outcome:
        if self._outcome is None:
            raise MisuseError("The transaction was rolled back: call tx.finish(result) before its block ends.")
        return self._outcome


class Transaction(_Finishable):
    """A block whose rows, messages and outcome exist together or not at all."""

    _turn: BlockingTurn

    def __init__(self, turn: BlockingTurn, target: object | None, record: Record, request: Request) -> None:
        super().__init__(target, record, request, turn.ledger)
        self._turn = turn
        self._is_single = turn.single is not None

    @property
    def connection(self) -> Any:
        """Return the connection, or the session, that the application's own rows go through."""
        if self._turn.transaction is None:
            raise MisuseError("The transaction has ended; use its connection inside the block.")
        return self._turn.transaction.connection

    def __enter__(self) -> Self:
        """Lock the record and begin, or raise `ClaimLost`."""
        if self._turn.single is not None:
            self._check_single(self._turn.single)
        else:
            self._turn.target = self._target
            self._turn.run(begin_guarded(self._record, self._request.policy))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit rows and outcome together; roll back if the block raised or gave no result."""
        if self._is_single:
            # The flow that claimed inside this transaction also ends it.
            self._turn.settled = None if error is not None else self._finished()
            self._turn.staged = tuple(self._staged)
            return
        if self._turn.transaction is None:
            return
        if error is not None or self._outcome is None:
            self._turn.run(leave_guarded(self._record, self._request.policy))
        if error is None:
            outcome = self._finished()
            messages = tuple(self._staged)
            self._turn.run(commit_guarded(self._record, self._request.policy, outcome, messages))
            self._turn.settled = outcome


class AsyncTransaction(_Finishable):
    """The asyncio twin of `Transaction`."""

    _turn: AsyncTurn

    def __init__(self, turn: AsyncTurn, target: object | None, record: Record, request: Request) -> None:
        super().__init__(target, record, request, turn.ledger)
        self._turn = turn
        self._is_single = turn.single is not None

    @property
    def connection(self) -> Any:
        """Return the connection, or the session, that the application's own rows go through."""
        if self._turn.transaction is None:
            raise MisuseError("The transaction has ended; use its connection inside the block.")
        return self._turn.transaction.connection

    async def execute(self, *arguments: Any) -> Any:
        """Send a statement, in the way of the connection's driver."""
        return await self.connection.execute(*arguments)

    async def run(self, work: Callable[[Any], T]) -> T:
        """Call a function with SQLite's own connection, on the thread that has it."""
        result: T = await self.connection.run(work)
        return result

    async def __aenter__(self) -> Self:
        """Lock the record and begin, or raise `ClaimLost`."""
        if self._turn.single is not None:
            self._check_single(self._turn.single)
        else:
            self._turn.target = self._target
            await drive_async(begin_guarded(self._record, self._request.policy), self._turn.perform)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit rows and outcome together; roll back if the block raised or gave no result."""
        if self._is_single:
            # The flow that claimed inside this transaction also ends it.
            self._turn.settled = None if error is not None else self._finished()
            self._turn.staged = tuple(self._staged)
            return
        if self._turn.transaction is None:
            return
        if error is not None or self._outcome is None:
            await drive_async(leave_guarded(self._record, self._request.policy), self._turn.perform)
        if error is None:
            outcome = self._finished()
            messages = tuple(self._staged)
            flow = commit_guarded(self._record, self._request.policy, outcome, messages)
            await drive_async(flow, self._turn.perform)
            self._turn.settled = outcome
