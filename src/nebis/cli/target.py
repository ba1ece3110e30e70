"""What people name on a command line: a module and an object in it, imported from where they are."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from nebis.errors import ConfigError, NebisError

# Exceptions that speak of the code and not of its data: their text may be shown.
_ABOUT_CODE = (ImportError, NameError, AttributeError, SyntaxError, TypeError, KeyError)


def imported(name: str) -> ModuleType:
    """Import a module, as `python -m` would find it; raise `ConfigError` if it is not there or fails."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # An installed command would not look here.
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise ConfigError([explained(name, missing)]) from None
        raise ConfigError([f"there is no module {missing.name!r}; run this where the application is found"]) from None
    except Exception as error:  # noqa: BLE001 - whatever the application raises while it is imported.
        raise ConfigError([explained(name, error)]) from None


def attribute(module: ModuleType, path: str) -> object:
    """Return what a module has under a name, or a dotted one; raise `ConfigError` if it has nothing."""
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError([f"{module.__name__} has no {path!r}; name the object as the module does"])
        found = getattr(found, part)
    return found


def explained(name: str, error: Exception) -> str:
    """Say where an application failed. What it says is left out where it might quote a password."""
    step = traceback.extract_tb(error.__traceback__)[-1]
    text = f": {error}" if isinstance(error, (*_ABOUT_CODE, NebisError)) else ""
    return f"{name} failed at {Path(step.filename).name}:{step.lineno} with {type(error).__name__}{text}; correct it"
