"""Where the compiled twins of a few functions are taken, if there are any.

`src/native` is compiled when Nebis is installed on a machine that has a C compiler and OpenSSL (`hatch_build.py`). The
Python code in this package says what each twin does, and does it itself wherever there is none: without a compiler,
with `NEBIS_PURE` set in the environment, or for whatever is unusual. `tests/native` compares them.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

PURE_VARIABLE: Final = "NEBIS_PURE"


def _signs_alike(module: Any) -> bool:
    """Tell whether it signs as this Python does: one that did not would take every known key for a new one."""
    key, message = bytes(range(32)), bytes(range(200))
    return all(
        module.Begun(key, message[:size]).sign(message[size:]) == hmac.digest(key, message, "sha256")
        for size in (0, 1, 63, 64, 199)
    )


def chosen(environment: Mapping[str, str], load: Callable[[], Any]) -> Any:
    """Return the compiled module, or None if it is not wanted, not there or not to be trusted."""
    if environment.get(PURE_VARIABLE):
        return None
    try:
        found = load()
    except ImportError:  # It was not compiled, or its OpenSSL is gone.
        return None
    return found if _signs_alike(found) else None


compiled: Final = chosen(os.environ, partial(import_module, "nebis.core._native"))
"""The compiled module; None where all is plain Python."""


def twinned(definition: F) -> F:
    """Let the compiled twin of a class or function stand in its place; a function is asked about what is unusual."""
    twin = getattr(compiled, definition.__name__, None)
    stand_in: Any = definition if twin is None else twin if isinstance(twin, type) else partial(twin, definition)
    return stand_in  # type: ignore[no-any-return]  # Of the same shape.
