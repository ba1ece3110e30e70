"""What an endpoint's decorator does with an ASGI request: read it whole, claim, tell what is wrong with it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from nebis.aio import AsyncNebis, AsyncOperation
from nebis.async_attempt import AsyncAttempt, AsyncOpenAttempt
from nebis.errors import ConfigError, NebisError
from nebis.flows.request import Ending, Request
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs, decoded, picked
from nebis.http.problem import problem
from nebis.http.query import query_pairs
from nebis.http.status import operation_id_of, status_view
from nebis.http.wire import Wire
from nebis.integrations.asgi import NOT_INSTALLED, PASSAGE, Passage, Scope
from nebis.integrations.bound import Bound
from nebis.integrations.protection import THE_BODY, Admission, Incoming, make_incoming
from nebis.integrations.tokens import issued
from nebis.sync import Attempt, Nebis, OpenAttempt, Operation

_OPEN_ATTEMPTS: Final = (AsyncOpenAttempt, OpenAttempt)


def passage_of(scope: Scope, protection: Admission) -> Passage:
    """Return the passage of a request, or raise `ConfigError` if nothing goes around its route."""
    passage = scope.get(PASSAGE)
    if not isinstance(passage, Passage):
        raise ConfigError([f"endpoint {protection.name!r}: {NOT_INSTALLED}"])
    if passage.attempt is not None:
        raise ConfigError([f"endpoint {protection.name!r} is protected twice; protect it by a rule or a decorator"])
    if passage.protection is not protection:
        passage.protect(protection)
    return passage


async def incoming(scope: Scope, passage: Passage, command: object = THE_BODY) -> Incoming:
    """Read the rest of a request, to its clean end, before anything is claimed (F080, F081)."""
    if passage.body is None:
        await passage.whole()
    return arrived(scope, passage, command)


def arrived(scope: Scope, passage: Passage, command: object = THE_BODY) -> Incoming:
    """Return a request that is whole; of its headers those that somebody asks for."""
    client, query = scope.get("client"), scope.get("query_string")
    assert passage.body is not None
    return make_incoming(
        method=scope["method"],
        headers=passage.headers,
        query=query_pairs(query.decode("latin-1")) if query else (),
        # Without a router the whole path counts.
        path=scope["path_params"] if "path_params" in scope else {"path": scope["path"]},
        body=passage.body,
        tree=passage.tree,
        peer=client[0] if client else None,
        command=command,
    )


def given_tenant(scope: Scope, admission: Admission) -> str | None:
    """Return the tenant where no function of the application is needed for it, or None if one is."""
    if callable(admission.tenant):
        return None
    client = scope.get("client")
    headers = picked(scope.get("headers", ()), admission.wanted)
    return admission.given_tenant(client[0] if client else None, headers)


def headers_of(scope: Scope) -> HeaderPairs:
    """Return the headers of a request."""
    return decoded(scope.get("headers", ()))


async def counted(value: Any) -> Any:
    """Return what of an argument counts. A file does by its name, type and content: the boundary around it changes."""
    if isinstance(value, list):
        return [await counted(one) for one in value]
    if isinstance(value, dict):
        return {name: await counted(one) for name, one in value.items()}
    if hasattr(value, "as_builtins"):  # Data of a Litestar DTO, which is no model yet.
        return value.as_builtins()
    if not (hasattr(value, "seek") and hasattr(value, "filename")):
        return value
    content = await value.read()
    await value.seek(0)
    return [value.filename, value.content_type, hashlib.sha256(content).digest()]


async def claimed(
    passage: Passage, nebis: AsyncNebis | Nebis, incoming: Incoming, tenant: object, render: Callable[[Any], Exchange]
) -> AsyncAttempt | Attempt | None:
    """Claim for an endpoint. None if it may run without a key, or, once `passage.answer` is set, not at all."""
    passage.render = render
    passage.tenant = str(tenant)
    if isinstance(nebis, AsyncNebis):
        _, secrets = nebis.opened_here() or await nebis.opened()
    else:
        _, secrets = await asyncio.to_thread(nebis.opened)
    request = passage.protected.prepare(secrets, incoming, tenant, render=render)
    return None if request is None else await begun(passage, nebis, request)


async def begun(passage: Passage, nebis: AsyncNebis | Nebis, request: Request) -> AsyncAttempt | Attempt | None:
    """Claim, or let `passage.answer` be what the caller is told instead."""
    if isinstance(nebis, AsyncNebis):
        task = asyncio.current_task()
        assert task is not None
        nebis.adopt(task)
        return await taken(passage, await nebis.begin(request))
    return await taken(passage, await asyncio.to_thread(nebis.begin, request))


async def taken(passage: Passage, found: AsyncOpenAttempt | OpenAttempt | Ending) -> AsyncAttempt | Attempt | None:
    """Take what a claim came to: an attempt, or what the caller is told instead."""
    if isinstance(found, _OPEN_ATTEMPTS):
        passage.attempt = found
        return found.attempt
    reference = passage.tell(found)
    if reference is not None:
        await passage.rebuild(reference)
    return None


async def executed(
    route: Bound, operation: AsyncOperation[Any, Any] | Operation[Any, Any], incoming: Incoming, tenant: object
) -> Exchange:
    """Call the operation that a route is bound to, and render its result."""
    call = route.call(incoming, tenant)
    asked: Any = {"key": call.key, "tenant": call.tenant, "command": call.command, "deadline": call.deadline}
    if isinstance(operation, AsyncOperation):
        execution = await operation.execute(**asked)
    else:
        execution = await asyncio.to_thread(operation.execute, **asked)
    return route.answer(execution)


async def read_status(
    nebis: AsyncNebis | Nebis, operation_id: str, tenant: object, wire: Wire | None = None
) -> Exchange:
    """Look an operation up for a tenant. What is unknown and what is another's are looked up and told alike (SEC07)."""
    wanted = operation_id_of(operation_id)
    try:
        record = (
            await nebis.find(wanted) if isinstance(nebis, AsyncNebis) else await asyncio.to_thread(nebis.find, wanted)
        )
        return status_view(record, tenant=str(tenant or ""))
    except NebisError as error:
        rendered = problem(error, wire or Wire())
        if rendered is None:
            raise
        return rendered


async def issue_token(
    nebis: AsyncNebis | Nebis,
    body: bytes,
    headers: HeaderPairs,
    tenant: object,
    *,
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Exchange:
    """Issue a key to a tenant, for the operation that it names."""
    secrets = (await nebis.opened() if isinstance(nebis, AsyncNebis) else await asyncio.to_thread(nebis.opened))[1]
    return issued(nebis, secrets, body, headers, tenant, lifetime=lifetime, wire=wire)


class Telling:
    """What `telling` returns; a class, as a generator costs every request twice as much."""

    __slots__ = ("_passage",)

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Make the answer of an error of ours; let any other go on."""
        if not isinstance(error, NebisError):
            return False
        assert self._passage.protection is not None
        self._passage.answer = self._passage.protection.refused(error)
        return True


def telling(passage: Passage) -> Telling:
    """Tell the caller whatever is wrong with the request, in place of running it."""
    return Telling(passage)
