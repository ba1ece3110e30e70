"""Classes with named fields, stored as JSON objects."""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nebis.core.codec_shape import Misfit, Shape, not_a, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named part of a record."""

    shape: Shape
    may_be_absent: bool = False
    default: Callable[[], object] | None = None  # For a record that was stored before the field existed (F118).


@dataclass(slots=True, kw_only=True, eq=False)
class Record:
    """A class with named fields; they are filled in after construction, because a class may refer to itself."""

    cls: type[Any]
    is_hashable: bool
    ignores_unknown: bool = False
    """A stored field that the class no longer has is left out instead of being a misfit."""
    fields: Mapping[str, Field] = field(default_factory=dict)

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
        for name, part in self.fields.items():
            if name not in values and not part.may_be_absent:
                raise Misfit("not set", f".{name}")
        return {name: _in_field(name, self.fields[name].shape.plain, item) for name, item in values.items()}

    def restore(self, raw: Any) -> Any:
        if type(raw) is not dict:
            raise not_a(f"the stored form of {self.name}", raw)
        # Ignoring it would let an old process run a command without a part that a newer one wrote.
        if raw.keys() - self.fields.keys() and not self.ignores_unknown:
            raise Misfit(f"holds a field that this version of {self.name} does not have; deploy the one that wrote it")
        values = {
            name: _in_field(name, self.fields[name].shape.restore, item)
            for name, item in raw.items()
            if name in self.fields
        }
        for name, part in self.fields.items():
            if name in values or part.may_be_absent:
                continue
            if part.default is None:
                raise Misfit("missing, and without a default", f".{name}")
            values[name] = part.default()
        return self.build(values)


def _in_field(name: str, convert: Callable[[Any], Any], item: Any) -> Any:
    try:
        return convert(item)
    except Misfit as misfit:
        raise misfit.inside(f".{name}") from None


class DataclassRecord(Record):
    """A dataclass; restored field by field, without `__init__` and `__post_init__`."""

    __slots__ = ()

    def read(self, value: Any) -> Mapping[str, Any]:
        if type(value) is not self.cls:
            raise not_a(self.name, value)
        values = {name: getattr(value, name) for name in self.fields if hasattr(value, name)}
        for name in getattr(value, "__dict__", {}).keys() - values.keys():
            if not isinstance(inspect.getattr_static(self.cls, name, None), functools.cached_property):
                raise Misfit(
                    "an attribute that is no field would be lost; declare it with field(init=False)", f".{name}"
                )
        return values

    def build(self, values: dict[str, Any]) -> Any:
        value = object.__new__(self.cls)
        for name, item in values.items():
            object.__setattr__(value, name, item)
        return value


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
