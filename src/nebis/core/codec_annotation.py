"""From an annotation to the shape of its values, or to the list of its faults."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, ForwardRef, Literal, NewType, NotRequired, Required, Union

from nebis.core.codec_model import ModelRefused, model_for
from nebis.core.codec_record import DataclassRecord, Field, NamedTupleRecord, Record, TypedDictRecord
from nebis.core.codec_scalar import SCALARS, Scalar, enum_scalar
from nebis.core.codec_shape import Choice, Items, JsonValue, Maybe, Row, Shape, Table, Tagged, type_name

_ADVICE: Final = "keep plain values instead, in a dataclass, a pydantic model or a msgspec struct"
_STAND_IN: Final = JsonValue(is_hashable=True)  # Takes the place of a faulty part while the rest is still examined.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One field as its class declares it."""

    name: str
    default: Callable[[], object] | None = None
    may_be_absent: bool = False


class AnnotationReader:
    """One reading of an annotation; it goes on after a fault so that all of them are told at once."""

    def __init__(self, *, ignores_unknown: bool = False) -> None:
        self._ignores_unknown = ignores_unknown
        self.faults: list[str] = []
        self.is_recursive = False
        self._records: dict[type, Record] = {}
        self._open: set[object] = set()

    def shape_of(self, annotation: object, path: str = "") -> Shape:
        """Return the shape of an annotation, noting its faults under `path`."""
        annotation = _bare(annotation)
        if annotation is inspect.Parameter.empty:
            return self._refuse(path, "the annotation is missing; write the type, or None where there is no value")
        if isinstance(annotation, str | ForwardRef):
            return self._refuse(path, f"{annotation!r} is a name that nobody resolved; annotate with the type itself")
        if hasattr(annotation, "__value__"):
            return self._alias(annotation, path)
        if annotation is Any:
            return JsonValue()
        if annotation is None:
            return SCALARS[type(None)]
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._parametrised(annotation, origin, path)
        if isinstance(annotation, type):
            return self._class(annotation, path)
        return self._refuse_type(path, annotation)

    def _refuse(self, path: str, text: str) -> Shape:
        self.faults.append(f"{path}: {text}" if path else text)
        return _STAND_IN

    def _refuse_type(self, path: str, annotation: object, advice: str = _ADVICE) -> Shape:
        return self._refuse(path, f"{_spelled(annotation)} cannot be stored; {advice}")

    def _alias(self, alias: Any, path: str) -> Shape:
        if alias in self._open:
            return self._refuse_type(path, alias, "an alias must not contain itself; use a dataclass, or Any for JSON")
        self._open.add(alias)
        shape = self.shape_of(alias.__value__, path)
        self._open.remove(alias)
        return shape

    def _parametrised(self, annotation: Any, origin: object, path: str) -> Shape:
        args = typing.get_args(annotation)
        if origin is Union or origin is types.UnionType:
            return self._union(annotation, path)
        if origin is Literal:
            return self._literal(args, path)
        # The empty tuple type has no arguments but knows that; the bare typing.Tuple does not.
        if origin is tuple and hasattr(annotation, "__args__"):
            return self._tuple(args, path)
        if origin is list or origin is dict:
            return self._list_or_dict(origin, args, path)
        if (origin is set or origin is frozenset) and args:
            return self._items(origin, args[0], path)
        if getattr(origin, "__parameters__", ()):
            return self._refuse_generic(annotation, path)
        return self._refuse_type(path, annotation, "name a concrete type, such as list[int] or dict[str, int]")

    def _list_or_dict(self, origin: type, args: Sequence[object], path: str) -> Shape:
        match args:
            case [item]:
                return self._items(origin, item, path)
            case [key, item]:
                key_shape = self._hashable(key, f"{path}[key]")
                return Table(key=key_shape, item=self.shape_of(item, f"{path}[]"))
            case _:
                return JsonValue(cls=origin)

    def _items(self, cls: type, item: object, path: str) -> Shape:
        if cls is set or cls is frozenset:
            return Items(cls=cls, item=self._hashable(item, f"{path}[]"), is_hashable=cls is frozenset)
        shape = self.shape_of(item, f"{path}[]")
        return Items(cls=cls, item=shape, is_hashable=cls is tuple and shape.is_hashable)

    def _tuple(self, args: Sequence[object], path: str) -> Shape:
        match args:
            case [item, types.EllipsisType()]:
                return self._items(tuple, item, path)
            case _:
                return Row(items=[self.shape_of(item, f"{path}[{index}]") for index, item in enumerate(args)])

    def _hashable(self, annotation: object, path: str) -> Shape:
        shape = self.shape_of(annotation, path)
        if not shape.is_hashable:
            return self._refuse_type(path, annotation, "it cannot be hashed; use a list, or a hashable type")
        return shape

    def _literal(self, values: Sequence[Any], path: str) -> Shape:
        plain_by_value: dict[tuple[type, object], Any] = {}
        value_by_plain: dict[tuple[type, object], Any] = {}
        for value in values:
            scalar = self.shape_of(type(value), path)
            if not isinstance(scalar, Scalar):
                return self._refuse_type(path, type(value), "a Literal holds text, numbers or members of an Enum")
            plain = scalar.plain(value)
            plain_by_value[type(value), value] = plain
            value_by_plain[type(plain), plain] = value
        name = f"Literal[{', '.join(_literal_name(value) for value in values)}]"
        if len(value_by_plain) < len(plain_by_value):
            return self._refuse(path, f"{name} has two values with one stored form; use an Enum")
        return Choice(name=name, plain_by_value=plain_by_value, value_by_plain=value_by_plain)

    def _union(self, annotation: object, path: str) -> Shape:
        members = list(_members(annotation))
        present = [member for member in members if member is not None and member is not type(None)]
        shape = self.shape_of(present[0], path) if len(present) == 1 else self._tagged(present, path)
        return shape if len(present) == len(members) else Maybe(inner=shape)

    def _tagged(self, annotations: Sequence[object], path: str) -> Shape:
        faults_before = len(self.faults)
        shapes = [self.shape_of(annotation, path) for annotation in annotations]
        if len(self.faults) > faults_before:
            return _STAND_IN
        members = {shape.name: shape for shape in shapes}
        if len(members) < len(shapes):
            return self._refuse(
                path, f"two members of the union {' | '.join(members)} have one name; rename one of them"
            )
        tag_by_type = {cls: tag for tag, shape in members.items() for cls in shape.types}
        # Any is of the type object and leaves nothing to the other members.
        if object in tag_by_type or len(tag_by_type) < sum(len(shape.types) for shape in shapes):
            return self._refuse(
                path, f"the members of the union {' | '.join(members)} cannot be told apart; merge them"
            )
        # Where a type checker lets an int stand for a float, so do we, unless int is a member of its own.
        if float in tag_by_type:
            tag_by_type.setdefault(int, tag_by_type[float])
        return Tagged(members=members, tag_by_type=tag_by_type)

    def _class(self, cls: type, path: str) -> Shape:
        if cls in SCALARS:
            return SCALARS[cls]
        if cls is dict or cls is list:
            return JsonValue(cls=cls)
        if issubclass(cls, Enum) and cls.__members__:
            return enum_scalar(cls)
        try:
            model = model_for(cls)
        except ModelRefused as refused:
            return self._refuse_type(path, cls, str(refused))
        if model is not None:
            return model
        kind = _record_kind(cls)
        if kind is not None:
            return self._record(cls, kind, path)
        if cls in {tuple, set, frozenset}:
            return self._refuse_type(path, cls, f"name the type of its items, such as {cls.__name__}[int]")
        return self._refuse_type(path, cls)

    def _record(self, cls: type, kind: type[Record], path: str) -> Shape:
        if cls in self._records:
            self.is_recursive = self.is_recursive or cls in self._open
            return self._records[cls]
        if getattr(cls, "__parameters__", ()):
            return self._refuse_generic(cls, path)
        if kind is DataclassRecord and not _can_be_made(cls):
            return self._refuse_type(path, cls, "it is abstract, or its base class needs a constructor of its own")
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except Exception as error:  # noqa: BLE001 - The text of an annotation is the user's and may raise anything.
            return self._refuse(path, unresolved(cls, error))
        record = self._records[cls] = kind(
            cls=cls, is_hashable=cls.__hash__ is not None, ignores_unknown=self._ignores_unknown
        )
        self._open.add(cls)
        record.fill({part.name: self._field(cls, part, hints) for part in _parts(cls, hints)})
        self._open.remove(cls)
        return record

    def _field(self, cls: type, part: _Part, hints: Mapping[str, object]) -> Field:
        hint = hints.get(part.name, inspect.Parameter.empty)
        shape = self.shape_of(hint, f"{type_name(cls)}.{part.name}")
        return Field(shape=shape, default=part.default, may_be_absent=part.may_be_absent)

    def _refuse_generic(self, annotation: object, path: str) -> Shape:
        return self._refuse_type(
            path, annotation, "generic classes are not supported; write a class with its own fields"
        )


def unresolved(target: object, error: Exception) -> str:
    """Say that annotations name something that does not exist at run time."""
    name = getattr(target, "__qualname__", repr(target))
    return (
        f"the annotations of {name} do not resolve ({error}); "
        "define the names they use at module level and import them at run time, not under TYPE_CHECKING"
    )


def _bare(annotation: object) -> object:
    """Take off what says something about a type without changing its values."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif typing.get_origin(annotation) in {Annotated, Required, NotRequired, Final}:
            annotation = typing.get_args(annotation)[0]
        else:
            return annotation


def _members(annotation: object) -> Iterator[object]:
    bare = _bare(annotation)
    if typing.get_origin(bare) in {Union, types.UnionType}:
        for member in typing.get_args(bare):
            yield from _members(member)
    else:
        yield bare


def _literal_name(value: object) -> str:
    return f"{type_name(type(value))}.{value.name}" if isinstance(value, Enum) else repr(value)


def _spelled(annotation: object) -> str:
    """Name a type as its reader would import it."""
    name = type_name(annotation)
    is_imported = isinstance(annotation, type) and annotation.__module__ != "builtins"
    return f"{annotation.__module__}.{name}" if is_imported else name


def _record_kind(cls: type) -> type[Record] | None:
    if dataclasses.is_dataclass(cls):
        return DataclassRecord
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
        return TypedDictRecord
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleRecord
    return None


def _can_be_made(cls: type) -> bool:
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def _parts(cls: Any, hints: Mapping[str, object]) -> Iterator[_Part]:
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            yield _Part(name=field.name, default=_default_of(field))
    elif issubclass(cls, dict):
        for name, hint in hints.items():
            yield _Part(name=name, may_be_absent=not _is_required(name, hint, cls))
    else:
        for name in cls._fields:
            has_default = name in cls._field_defaults
            yield _Part(name=name, default=partial(cls._field_defaults.get, name) if has_default else None)


def _default_of(field: dataclasses.Field[Any]) -> Callable[[], object] | None:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    return None


def _is_required(name: str, hint: object, cls: Any) -> bool:
    # Under postponed annotations the class itself overlooks NotRequired, so the resolved hint comes first.
    origin = typing.get_origin(hint)
    return origin is Required if origin in {Required, NotRequired} else name in cls.__required_keys__
