"""Classes with named fields, stored as JSON objects."""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

from nebis.core.codec_shape import NOTHING, Misfit, Shape, not_a, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named part of a record."""

    shape: Shape
    may_be_absent: bool = False
    default: Callable[[], object] | None = None  # For a record that was stored before the field existed (F118).


# What a record needs of the shape of a field, in one look: see `Shape`.
_Ways: TypeAlias = tuple[frozenset[type], Callable[[Any], Any], Callable[[Any], Any]]


@dataclass(slots=True, kw_only=True, eq=False)
class Record:
    """A class with named fields; they are filled in after construction, because a class may refer to itself."""

    cls: type[Any]
    is_hashable: bool
    ignores_unknown: bool = False
    """A stored field that the class no longer has is left out instead of being a misfit."""
    fields: Mapping[str, Field] = field(default_factory=dict)
    verbatim: frozenset[type] = NOTHING
    _ways: dict[str, _Ways] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.fill(self.fields)

    def fill(self, fields: Mapping[str, Field]) -> None:
        """Set the fields, once the shapes of all of them are known."""
        self.fields = fields
        self._ways = {
            name: (part.shape.verbatim, part.shape.plain, part.shape.restore) for name, part in fields.items()
        }

    @property
    def name(self) -> str:
        return type_name(self.cls)

    @property
    def types(self) -> frozenset[type]:
        return frozenset({self.cls})

    @abstractmethod
    def read(self, value: Any) -> Mapping[str, Any]:
        """Return the fields that are set, or raise `Misfit` when something else would be lost."""

    @abstractmethod
    def build(self, values: dict[str, Any]) -> Any:
        """Make the value again from its fields."""

    def plain(self, value: Any) -> Any:
        values = self.read(value)
        if len(values) < len(self.fields):
            for name, part in self.fields.items():
                if name not in values and not part.may_be_absent:
                    raise Misfit("not set", f".{name}")
        ways, raw, name = self._ways, {}, ""
        try:
            for name, item in values.items():
                verbatim, plain, _ = ways[name]
                raw[name] = item if type(item) in verbatim else plain(item)
        except Misfit as misfit:
            raise misfit.inside(f".{name}") from None
        return raw

    def restore(self, raw: Any) -> Any:
        if type(raw) is not dict:
            raise not_a(f"the stored form of {self.name}", raw)
        ways, values, name = self._ways, {}, ""
        if not raw.keys() <= ways.keys():
            # Ignoring it would let an old process run a command without a part that a newer one wrote.
            if not self.ignores_unknown:
                raise Misfit(
                    f"holds a field that this version of {self.name} does not have; deploy the one that wrote it"
                )
            raw = {name: item for name, item in raw.items() if name in ways}
        try:
            for name, item in raw.items():
                verbatim, _, restore = ways[name]
                values[name] = item if type(item) in verbatim else restore(item)
        except Misfit as misfit:
            raise misfit.inside(f".{name}") from None
        if len(values) < len(ways):
            self._add_defaults(values)
        return self.build(values)

    def _add_defaults(self, values: dict[str, Any]) -> None:
        for name, part in self.fields.items():
            if name in values or part.may_be_absent:
                continue
            if part.default is None:
                raise Misfit("missing, and without a default", f".{name}")
            values[name] = part.default()


class DataclassRecord(Record):
    """A dataclass; restored field by field, without `__init__` and `__post_init__`."""

    __slots__ = ("_all_of",)

    def fill(self, fields: Mapping[str, Field]) -> None:
        """Set the fields, and how to read all of them at once."""
        super().fill(fields)
        # One name alone would not give a tuple; the second one is the first again, and left out with `zip`.
        self._all_of = attrgetter(*fields, *(fields if len(fields) == 1 else ())) if fields else _no_values

    def read(self, value: Any) -> Mapping[str, Any]:
        if type(value) is not self.cls:
            raise not_a(self.name, value)
        try:
            values = dict(zip(self.fields, self._all_of(value), strict=False))
        except AttributeError:  # A field was never set, or deleted.
            values = {name: getattr(value, name) for name in self.fields if hasattr(value, name)}
        held = getattr(value, "__dict__", None)
        if held and not held.keys() <= values.keys():
            self._require_no_more(held.keys() - values.keys())
        return values

    def _require_no_more(self, names: Iterable[str]) -> None:
        for name in names:
            if not isinstance(inspect.getattr_static(self.cls, name, None), functools.cached_property):
                raise Misfit(
                    "an attribute that is no field would be lost; declare it with field(init=False)", f".{name}"
                )

    def build(self, values: dict[str, Any]) -> Any:
        value = object.__new__(self.cls)
        put = object.__setattr__
        for name, item in values.items():
            put(value, name, item)
        return value


def _no_values(_: object) -> tuple[()]:
    return ()


class NamedTupleRecord(Record):
    """A `NamedTuple`."""

    __slots__ = ()

    def read(self, value: Any) -> Mapping[str, Any]:
        if type(value) is not self.cls:
            raise not_a(self.name, value)
        return dict(zip(self.fields, value, strict=True))

    def build(self, values: dict[str, Any]) -> Any:
        return tuple.__new__(self.cls, [values[name] for name in self.fields])


class TypedDictRecord(Record):
    """A `TypedDict`: a plain dict whose keys are known."""

    __slots__ = ()

    @property
    def types(self) -> frozenset[type]:
        return frozenset({dict})

    def read(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise not_a(self.name, value)
        if value.keys() - self.fields.keys():
            raise Misfit(f"holds a key that {self.name} does not declare")
        return value

    def build(self, values: dict[str, Any]) -> Any:
        return values
