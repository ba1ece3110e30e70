"""Libraries that come with an extra: who lacks one is told what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# What an extra brings, by the name that is imported. A library that these need themselves is theirs to miss.
_BROUGHT: Final = {
    "starlette": ("starlette",),
    "fastapi": ("fastapi", "pydantic", "starlette"),
    "litestar": ("litestar",),
    "flask": ("flask", "werkzeug"),
    "django": ("django", "asgiref"),
    "drf": ("rest_framework", "django"),
}


def missing(library: str, *, extra: str) -> ModuleNotFoundError:
    """Return the error that names the extra which brings this library."""
    return ModuleNotFoundError(f"{library} is not installed. Run: pip install 'nebis[{extra}]'", name=library)


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Import what an extra brings; raise `ModuleNotFoundError` that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _BROUGHT[extra]:
            raise
        raise missing(error.name, extra=extra) from None
