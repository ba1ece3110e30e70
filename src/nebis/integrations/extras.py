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


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Import what an extra brings; raise `ModuleNotFoundError` that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in _BROUGHT[extra]:
            raise
        raise ModuleNotFoundError(
            f'{missing.name} is not installed. Run: pip install "nebis[{extra}]"', name=missing.name
        ) from None
