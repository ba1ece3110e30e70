"""Where `idempotent` stands: below whoever may refuse a caller, and outside of every transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

from nebis.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

# Decorators that may stand below: they say how a view is called, never who may call it.
_INDIFFERENT = ("django.views.decorators.", "django.utils.decorators", "contextlib", "nebis.integrations.")


_BELOW = (
    "the decorator {} stands below, so that a caller whom it would refuse could be told a stored answer; "
    "put ours directly on the view, below all others"
)
_INSIDE = (
    "endpoint {!r} was called inside a transaction of {!r}, which would be committed only after the answer is stored; "
    "put @transaction.non_atomic_requests on the view that is in the URLs (of a class: on dispatch, by "
    "method_decorator), and open the transaction inside"
)


def require_place(function: Callable[..., Any], name: str) -> None:
    """Refuse to stand above what may refuse a caller: who may not would be told what is stored (SEC03)."""
    faults = []
    if hasattr(function, "view_class") or hasattr(function, "cls"):
        faults.append("it is a whole class, which asks inside who may call; protect its method instead, such as post")
    elif getattr(function, "__name__", "") == "dispatch":
        faults.append("it is dispatch, in which mixins ask who may call; protect post, put, patch or delete instead")
    faults.extend(_BELOW.format(_called(layer)) for layer in _layers(function) if not _is_indifferent(layer))
    if faults:
        raise ConfigError([f"endpoint {name!r}: {fault}" for fault in faults])


def _layers(function: Any) -> Iterator[Any]:
    while hasattr(function, "__wrapped__"):
        yield function
        function = function.__wrapped__


def _is_indifferent(layer: Any) -> bool:
    if isinstance(layer, functools.partial):  # Of Django's `method_decorator`.
        return True
    # A wrapper takes the names of what it wraps; only its globals tell where it was made.
    made_in = str(getattr(layer, "__globals__", {}).get("__name__", ""))
    return made_in.startswith(_INDIFFERENT)


def _called(layer: Any) -> str:
    code = getattr(layer, "__code__", None)
    return type(layer).__name__ if code is None else str(code.co_qualname).partition(".")[0]


def require_alone(name: str) -> None:
    """Refuse an open transaction around the claim: it would be committed only after the answer is stored (D1)."""
    for connection in connections.all(initialized_only=True):
        if any(not block._from_testcase for block in connection.atomic_blocks):  # noqa: SLF001 - as Django's own check.
            raise ConfigError([_INSIDE.format(name, connection.alias)])


class OwnTransactions(set[str]):
    """What tells Django to leave ATOMIC_REQUESTS to us, for every database: we open them inside the claim.

    What it holds is what `transaction.non_atomic_requests` has named: there we open none either.
    """

    def __contains__(self, alias: object) -> bool:
        """Say yes, whatever the database."""
        return True

    def mark(self, view: F) -> F:
        """Let Django find this where it looks before it opens a transaction around a view."""
        view._non_atomic_requests = self  # type: ignore[attr-defined]  # noqa: SLF001 - the name is Django's.
        return view

    @contextmanager
    def opened(self, request: Any) -> Iterator[None]:
        """Open the transactions that Django would have opened around the view."""
        with ExitStack() as stack:
            # Unless Django was asked about another view than ours, such as that of a class.
            if getattr(_resolved(request), "_non_atomic_requests", None) is self:
                for connection in connections.all():
                    is_left = set.__contains__(self, connection.alias)
                    if connection.settings_dict["ATOMIC_REQUESTS"] and not is_left:
                        stack.enter_context(transaction.atomic(using=connection.alias))
            yield


def _resolved(request: Any) -> Any:
    return getattr(getattr(request, "resolver_match", None), "func", None)
