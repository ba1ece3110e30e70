"""The shapes that stored values may take, and their plain JSON form.

A shape is built once, from an annotation, by `nebis.core.codec`. `plain` turns a value into what `json` can write,
`restore` turns that back; each raises `Misfit` for anything else. No code of the user's classes runs here, except
hashing: `__init__` and `__post_init__` may depend on the day or on other services, and a replay must not.
A misfit names types and fields, never values (SEC24).

Most leaves of a stored value are text, whole numbers and the like, which are their own plain form. A shape names the
classes of such values as `verbatim`, and whatever holds them looks at their classes, in one go, instead of asking the
shape about each: the answer is the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

# Bounds the recursion of values whose type does not bound it. Ordinary documents stay below 20 levels; a limit of
# several hundred would exhaust the interpreter's stack under a web framework.
DEPTH_LIMIT: Final = 64


class Misfit(Exception):
    """A value, or its stored form, that is not of the annotated type."""

    def __init__(self, detail: str, path: str = "") -> None:
        self.detail = detail
        self.path = path
        super().__init__(f"{path}: {detail}")

    def inside(self, step: str) -> Misfit:
        """Return the same misfit seen from one level further out."""
        return Misfit(self.detail, f"{step}{self.path}")


class Shape(Protocol):
    """The two directions between values of one type and their plain JSON form."""

    @property
    def name(self) -> str: ...

    @property
    def types(self) -> frozenset[type]:
        """Name the classes of its values, by which the members of a union are told apart."""
        ...

    @property
    def is_hashable(self) -> bool: ...

    @property
    def verbatim(self) -> frozenset[type]:
        """Name the classes whose values `plain` and `restore` both return as they are, whatever the value."""
        ...

    def plain(self, value: Any) -> Any: ...

    def restore(self, raw: Any) -> Any: ...


NOTHING: Final[frozenset[type]] = frozenset()
_NONE: Final = frozenset({type(None)})
_TEXT: Final = frozenset({str})
_PLAIN_JSON: Final = frozenset({type(None), bool, int, str})


def type_name(annotation: object) -> str:
    """Name a type for people: a class without its module and surrounding function, anything else as it prints."""
    return annotation.__qualname__.rpartition("<locals>.")[2] if isinstance(annotation, type) else repr(annotation)


def not_a(expected: str, found: object) -> Misfit:
    return Misfit(f"expected {expected}, found {type_name(type(found))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A `Literal`, stored as the plain form of the chosen value."""

    name: str
    plain_by_value: Mapping[tuple[type, object], Any]
    value_by_plain: Mapping[tuple[type, object], Any]
    is_hashable: bool = True
    verbatim: frozenset[type] = NOTHING

    @property
    def types(self) -> frozenset[type]:
        return frozenset(cls for cls, _ in self.plain_by_value)

    def plain(self, value: Any) -> Any:
        # The type is part of the key because 1 == True, and Literal[1] is not Literal[True].
        return self._lookup(self.plain_by_value, value)

    def restore(self, raw: Any) -> Any:
        return self._lookup(self.value_by_plain, raw)

    def _lookup(self, table: Mapping[tuple[type, object], Any], key: Any) -> Any:
        try:
            return table[type(key), key]
        except (KeyError, TypeError):
            raise Misfit(f"expected one of {self.name}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Maybe:
    """An optional value: null, or the plain form of the inner shape."""

    inner: Shape
    verbatim: frozenset[type] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verbatim", self.inner.verbatim | _NONE)

    @property
    def name(self) -> str:
        return f"{self.inner.name} | None"

    @property
    def types(self) -> frozenset[type]:
        return self.inner.types | {type(None)}

    @property
    def is_hashable(self) -> bool:
        return self.inner.is_hashable

    def plain(self, value: Any) -> Any:
        return None if value is None else self.inner.plain(value)

    def restore(self, raw: Any) -> Any:
        return None if raw is None else self.inner.restore(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A union, stored as a pair of the member's name and its plain form."""

    members: Mapping[str, Shape]
    tag_by_type: Mapping[type, str]
    verbatim: frozenset[type] = NOTHING

    @property
    def name(self) -> str:
        return " | ".join(self.members)

    @property
    def types(self) -> frozenset[type]:
        return frozenset(self.tag_by_type)

    @property
    def is_hashable(self) -> bool:
        return all(member.is_hashable for member in self.members.values())

    def plain(self, value: Any) -> Any:
        # The nearest class wins, so that a member and its own subclass can stand side by side.
        for cls in type(value).__mro__:
            if (tag := self.tag_by_type.get(cls)) is not None:
                return [tag, self.members[tag].plain(value)]
        raise not_a(self.name, value)

    def restore(self, raw: Any) -> Any:
        match raw:
            case [str(tag), inner] if tag in self.members:
                return self.members[tag].restore(inner)
            case _:
                raise Misfit(f"not a stored member of {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list, set, frozenset or tuple of any length, stored as an array."""

    cls: type[Any]
    item: Shape
    is_hashable: bool
    verbatim: frozenset[type] = NOTHING

    @property
    def name(self) -> str:
        return f"{self.cls.__name__}[{self.item.name}{', ...' if self.cls is tuple else ''}]"

    @property
    def types(self) -> frozenset[type]:
        return frozenset({self.cls})

    def plain(self, value: Any) -> Any:
        if not isinstance(value, self.cls):
            raise not_a(self.name, value)
        raw = _each(self.item, self.item.plain, value)
        # Sets iterate differently in every process; sorted, one value has one stored form.
        return sorted(raw, key=json.dumps) if issubclass(self.cls, (set, frozenset)) else raw

    def restore(self, raw: Any) -> Any:
        if type(raw) is not list:
            raise not_a(f"the stored form of {self.name}", raw)
        try:
            items = _each(self.item, self.item.restore, raw)
            value = items if self.cls is list else self.cls(items)
        except TypeError:
            raise Misfit(f"an item of {self.name} cannot be hashed") from None
        if len(value) != len(raw):
            raise Misfit(f"{self.name} holds an item twice")
        return value


def _each(shape: Shape, convert: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
    """Convert every item in one of the two directions of its shape."""
    verbatim = shape.verbatim
    if verbatim.issuperset(map(type, items)):
        return list(items)
    try:
        return [item if type(item) in verbatim else convert(item) for item in items]
    except Misfit as misfit:
        raise misfit.inside("[]") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tuple of fixed length, stored as an array."""

    items: Sequence[Shape]
    verbatim: frozenset[type] = NOTHING

    @property
    def name(self) -> str:
        return f"tuple[{', '.join(item.name for item in self.items) or '()'}]"

    @property
    def types(self) -> frozenset[type]:
        return frozenset({tuple})

    @property
    def is_hashable(self) -> bool:
        return all(item.is_hashable for item in self.items)

    def plain(self, value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise not_a(self.name, value)
        return [self._at(index, item.plain, value[index]) for index, item in enumerate(self.items)]

    def restore(self, raw: Any) -> Any:
        if type(raw) is not list or len(raw) != len(self.items):
            raise not_a(f"the stored form of {self.name}", raw)
        return tuple(self._at(index, item.restore, raw[index]) for index, item in enumerate(self.items))

    @staticmethod
    def _at(index: int, convert: Callable[[Any], Any], item: Any) -> Any:
        try:
            return convert(item)
        except Misfit as misfit:
            raise misfit.inside(f"[{index}]") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A dict, stored as an object when its keys are text and as an array of pairs otherwise."""

    key: Shape
    item: Shape
    is_hashable: bool = False
    verbatim: frozenset[type] = NOTHING
    _has_text_keys: bool = field(init=False, repr=False)
    _has_any_text: bool = field(init=False, repr=False)
    """Any text may be a key: a dict that holds nothing but verbatim items is then its own plain form."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_has_text_keys", self.key.types == _TEXT)
        object.__setattr__(self, "_has_any_text", self.key.verbatim == _TEXT)

    @property
    def flat(self) -> frozenset[type]:
        """Name the classes of items with which any dict is its own plain form, whatever the text of its keys."""
        return self.item.verbatim if self._has_any_text else NOTHING

    @property
    def name(self) -> str:
        return f"dict[{self.key.name}, {self.item.name}]"

    @property
    def types(self) -> frozenset[type]:
        return frozenset({dict})

    def plain(self, value: Any) -> Any:
        if (
            type(value) is dict
            and self._has_any_text
            and _TEXT.issuperset(map(type, value))
            and (self.item.verbatim.issuperset(map(type, value.values())) or self._holds_json(value.values()))
        ):
            return value
        if not isinstance(value, dict):
            raise not_a(self.name, value)
        keys = _each(self.key, self.key.plain, value)
        pairs = zip(keys, _each(self.item, self.item.plain, value.values()), strict=True)
        return dict(pairs) if self._has_text_keys else [list(pair) for pair in pairs]

    def restore(self, raw: Any) -> Any:
        keys: Collection[Any]
        items: Collection[Any]
        if type(raw) is dict and self._has_text_keys:
            keys, items = raw, raw.values()
            # Nobody else has what was just read, so that it need not be copied.
            if (
                self._has_any_text
                and _TEXT.issuperset(map(type, keys))
                and (self.item.verbatim.issuperset(map(type, items)) or self._holds_json(items))
            ):
                return raw
        else:
            pairs = self._pairs(raw)
            keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        try:
            keys = _each(self.key, self.key.restore, keys)
            value = dict(zip(keys, _each(self.item, self.item.restore, items), strict=True))
        except TypeError:
            raise Misfit(f"a key of {self.name} cannot be hashed") from None
        if len(value) != len(raw):
            raise Misfit(f"{self.name} holds a key twice")
        return value

    def _holds_json(self, items: Collection[Any]) -> bool:
        """Tell whether all items are JSON where any JSON will do; who is told no asks each of them for the reason."""
        if type(self.item) is not JsonValue or self.item.cls is not None:
            return False
        try:
            require_json(list(items), depth=0)
        except Misfit:
            return False
        return True

    def _pairs(self, raw: Any) -> list[list[Any]]:
        is_pairs = type(raw) is list and all(type(pair) is list and len(pair) == 2 for pair in raw)
        if self._has_text_keys or not is_pairs:
            raise not_a(f"the stored form of {self.name}", raw)
        pairs: list[list[Any]] = raw
        return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonValue:
    """Whatever JSON itself can say, for `Any` and for a bare `dict` or `list`.

    Types are compared exactly here: with no annotation to restore by, a tuple would come back as a list.
    """

    cls: type | None = None
    is_hashable: bool = False
    verbatim: frozenset[type] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verbatim", _PLAIN_JSON if self.cls is None else NOTHING)

    @property
    def flat(self) -> frozenset[type]:
        """Name the same as a `Table` does."""
        return NOTHING if self.cls is list else _PLAIN_JSON

    @property
    def name(self) -> str:
        return "Any" if self.cls is None else self.cls.__name__

    @property
    def types(self) -> frozenset[type]:
        return frozenset({object if self.cls is None else self.cls})

    def plain(self, value: Any) -> Any:
        if self.cls is not None and type(value) is not self.cls:
            raise not_a(self.name, value)
        require_json(value)
        return value

    restore = plain


def require_json(value: Any, depth: int = 1) -> None:
    """Raise `Misfit` unless a value is finite JSON of at most `DEPTH_LIMIT` levels, of which it is the first."""
    # A stack, not a queue: a value that contains itself reaches the limit at once instead of fanning out.
    pending = [(value, depth)]
    while pending:
        item, depth = pending.pop()
        cls = type(item)
        children: Collection[Any]
        if cls is dict:
            if not _TEXT.issuperset(map(type, item)):
                raise Misfit("expected text as every key of a JSON object; annotate the dict with its key type")
            children = item.values()
        elif cls is list:
            children = item
        elif cls is float:
            if not math.isfinite(item):
                raise Misfit("NaN and infinity have no JSON form")
            continue
        elif cls in _PLAIN_JSON:
            continue
        else:
            raise not_a("a JSON value", item)
        if children and depth == DEPTH_LIMIT:
            raise Misfit(f"nested deeper than {DEPTH_LIMIT} levels")
        if not _PLAIN_JSON.issuperset(map(type, children)):
            pending.extend(
                [
                    (child, depth + 1)
                    for child in children
                    if type(child) not in _PLAIN_JSON and not (type(child) is float and math.isfinite(child))
                ]
            )
