"""Frozen values that are made as fast as open ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import new_class
from typing import Any, ParamSpec, TypeVar

from nebis.core.native import twinned

P = ParamSpec("P")
V = TypeVar("V")


def quick(cls: type[V]) -> type[V]:
    """Let a frozen dataclass with slots set its fields in less than half the time.

    Its own `__init__` must ask `object` to set each field. This one sets them while the value is still of an open class
    with the same slots, then makes it what it is: the same arguments, the same value, and frozen before anybody has it.
    Worth it from about six fields on. A class with a `__post_init__`, a factory or heirs is not for this.
    """
    made: Any = cls
    usual, faster = made.__init__, _written(made, "__init__", "self, ", "become(self, '__class__', Opened)")
    for attribute in ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__module__"):
        setattr(faster, attribute, getattr(usual, attribute))
    made.__init__ = faster
    return cls


def maker(cls: Callable[P, V]) -> Callable[P, V]:
    """Return a function that makes values of a class like these, in half the time again.

    The same arguments, the same value. A class that is called collects its named arguments in a dict before its
    `__init__` sees them, which takes longer than to set the fields: for what every request makes. Above fifteen names
    the interpreter makes such a dict for a function too, at four times the price of giving them by position. Where it
    is compiled it takes a quarter of that, and is worth it from the first field on, for open classes too.
    """
    made: Any = cls
    make: Any = _written(made, "make", "", "self = new(Opened)", "return self")
    make.__defaults__, make.__kwdefaults__ = made.__init__.__defaults__, made.__init__.__kwdefaults__
    return Maker(made, make).make


@twinned
class Maker:
    """Makes values with slots in one step, where it is compiled; here as a function does that says how."""

    __slots__ = ("make",)

    def __init__(self, kind: type, written: Callable[..., Any]) -> None:  # noqa: ARG002 - the compiled one uses it.
        """Take a class and a function whose arguments are its slots, by the same names."""
        self.make = written


def _written(cls: Any, name: str, receiver: str, begin: str, end: str = "") -> Any:
    """Write a function that sets all fields of a value while its class is still open."""
    names = [field.name for field in fields(cls)]
    is_frozen = cls.__dataclass_params__.frozen
    opened = _opened(cls) if is_frozen else cls
    place: dict[str, Any] = {
        "become": object.__setattr__,
        "new": object.__new__,
        "Opened": opened,
        "Frozen": cls,
    }
    by_name_only = "*, " if cls.__init__.__code__.co_kwonlyargcount else ""
    lines = [
        f"def {name}({receiver}{by_name_only}{', '.join(names)}):",
        f"    {begin}",
        *(f"    self.{each} = {each}" for each in names),
        "    self.__class__ = Frozen" if is_frozen else "",
        f"    {end}",
    ]
    exec("\n".join(lines), place)  # noqa: S102 - written here from names of fields, as `dataclasses` itself does it.
    return place[name]


def _opened(cls: Any) -> type:
    # With the same bases, as the slots of both must lie alike; that is nothing, or `Generic`.
    bases = getattr(cls, "__orig_bases__", ())
    return new_class(cls.__name__, bases, exec_body=lambda namespace: namespace.update(__slots__=cls.__slots__))
