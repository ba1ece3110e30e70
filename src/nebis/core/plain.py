"""A command as a plain tree: what of it counts for its fingerprint."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from nebis.core.canonical import DEEPEST_TREE, Encoded, Model, canonical
from nebis.core.jsonform import json_form
from nebis.errors import BodyRefused, MisuseError

_SCALARS = (type(None), bool, int, float, Decimal, str, bytes, bytearray, UUID, date, time, timedelta, Enum)
_USUAL_SCALARS = frozenset({type(None), bool, int, float, Decimal, str, bytes})
# A command's class may fix the name by which it is fingerprinted, so that renaming the class changes nothing.
_NAME = "__nebis_name__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Which fields count, by dotted path; a path means the field and everything below it, in every list element."""

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.include == ():
            raise ValueError("include=() leaves nothing that counts: any command would match any other.")
        for path in (*(self.include or ()), *self.exclude):
            if not all(path.split(".")):
                raise ValueError(f"{path!r} is not a dotted path of field names.")


def plain(command: object, *, fields: Fields | None = None) -> object:
    """Turn a command into a plain tree for `canonical`.

    Fields equal to their default are left out, so that a deploy that adds one does not turn retries into 422s (F5).
    A model carries the name of its class: without it two members of a union would be equal wherever only their
    defaults tell them apart.
    """
    return _plain(command, _choice(fields or _EVERYTHING), 0)


def unknown_fields(command_type: type, fields: Fields) -> tuple[str, ...]:
    """List the paths whose first name is no field of the command, for a start-up check; empty for an open mapping."""
    described: Mapping[str, object] | None = _layout(command_type)
    known = set(getattr(command_type, "__annotations__", {}) if described is None else described)
    paths = (*(fields.include or ()), *fields.exclude)
    return tuple(path for path in paths if known and path.split(".")[0] not in known)


# Paths as a tree: a name leads to what is chosen below it, and an empty branch is the end of a path.
_Branches: TypeAlias = "dict[str, _Branches]"


def _branches(paths: Iterable[str]) -> _Branches:
    root: _Branches = {}
    # Longest first: a shorter path that covers a longer one then cuts it off.
    for path in sorted(paths, key=len, reverse=True):
        *above, last = path.split(".")
        branch = root
        for name in above:
            branch = branch.setdefault(name, {})
        branch[last] = {}
    return root


@dataclass(frozen=True, slots=True)
class _Choice:
    """What counts below one place of the tree; `include` is None where everything does."""

    include: _Branches | None
    exclude: _Branches

    @property
    def is_everything(self) -> bool:
        return self.include is None and not self.exclude

    def below(self, name: object) -> _Choice | None:
        """Give the choice for one member, or None if it does not count."""
        if self.is_everything:  # And so is everything below.
            return self
        if not isinstance(name, str):  # Such a name cannot stand in a path, so it is passed over like a list index.
            return self
        exclude = self.exclude.get(name)
        if exclude is not None and not exclude:
            return None
        include = self.include
        if include is not None:
            if name not in include:
                return None
            include = include[name] or None
        return _Choice(include, exclude or {})


# How a field that the caller left out gets its value; None for a field that has to be given.
_Default: TypeAlias = Callable[[], object] | None
_Layout: TypeAlias = Mapping[str, _Default]


def _plain(node: object, choice: _Choice, depth: int) -> object:
    if depth > DEEPEST_TREE:
        raise BodyRefused(f"it is nested deeper than {DEEPEST_TREE} levels")
    kind: type = type(node)
    # By exact type first, as `canonical` does: asking whether it is any of a dozen kinds is slow.
    if kind in _USUAL_SCALARS or isinstance(node, _SCALARS):
        return node
    layout = None if kind is dict or kind is list else _layout(kind)
    if layout is not None:
        return _model(node, layout, choice, depth)
    if isinstance(node, Mapping):
        return _members(node, choice, depth)
    if isinstance(node, list | tuple):
        return [_plain(item, choice, depth + 1) for item in node]
    if isinstance(node, AbstractSet):
        # Scalars only, as an element of a set cannot be named by a path.
        return frozenset(_require_scalar(item) for item in node)
    return _revealed(node)


def _members(members: Mapping[Any, object], choice: _Choice, depth: int) -> dict[Any, object]:
    tree = {}
    for name, member in members.items():
        below = choice.below(name)
        if below is not None:
            tree[name] = _plain(member, below, depth + 1)
    return tree


def _model(node: object, layout: _Layout, choice: _Choice, depth: int) -> Model:
    given = getattr(node, "__pydantic_fields_set__", None)
    tree = {}
    for name, default in layout.items():
        below = choice.below(name)
        if below is None:
            continue
        value = getattr(node, name)
        # An untouched scalar can only be the default, even one that a factory makes anew each time. An untouched list
        # may have been filled in place, so it is compared.
        if given is not None and name not in given and isinstance(value, _SCALARS):
            continue
        usual = value if default is None else default()
        if default is not None and value is usual:
            continue
        # Each field is encoded once, on the way up: comparing trees level by level would cost the square of the depth.
        form = _form(value, below, depth + 1)
        if default is None or form != _form_of_default(usual, below, depth):
            tree[name] = Encoded(form)
    extra = getattr(node, "__pydantic_extra__", None) or {}
    name = vars(type(node)).get(_NAME, type(node).__name__)
    return Model(name=name, fields=tree, extra=_members(extra, choice, depth))


def _form(node: object, choice: _Choice, depth: int) -> bytes:
    """Give the form of one field, which is most often plain JSON of which everything counts."""
    form = json_form(node, depth) if choice.is_everything else None
    return canonical(_plain(node, choice, depth)) if form is None else form


def _form_of_default(usual: object, choice: _Choice, depth: int) -> bytes | None:
    """Give what to compare with; not by `==`, which takes False for 0 and may be anything in a class of the user's."""
    try:
        return _form(usual, choice, depth + 1)
    except MisuseError:  # A marker such as an "unset" object: only itself is equal to it.
        return None


_EVERYTHING = Fields()


@lru_cache(maxsize=1024)
def _choice(fields: Fields) -> _Choice:
    include = None if fields.include is None else _branches(fields.include)
    return _Choice(include, _branches(fields.exclude))


@lru_cache(maxsize=4096)
def _layout(kind: type) -> _Layout | None:
    """Give the fields of a model class and their defaults, or None. The library that made it is never imported."""
    if hasattr(kind, "__pydantic_validator__"):
        # The second spelling is how models, but not dataclasses, had it before pydantic 2.10.
        described: dict[str, Any] = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", {})
        return {name: _pydantic_default(field) for name, field in described.items()}
    if hasattr(kind, "__struct_fields__"):
        msgspec = sys.modules["msgspec"]
        return {
            field.name: _default(field.default, field.default_factory, missing=msgspec.NODEFAULT)
            for field in msgspec.structs.fields(kind)
        }
    if dataclasses.is_dataclass(kind):
        return {
            field.name: _default(field.default, field.default_factory, missing=dataclasses.MISSING)
            for field in dataclasses.fields(kind)
        }
    return None


def _pydantic_default(field: Any) -> _Default:
    # A factory that looks at the other fields cannot be asked again without validating the whole model again.
    if field.is_required() or getattr(field, "default_factory_takes_validated_data", None):
        return None
    made: _Default = field.default_factory
    return made or (lambda: field.default)


def _default(value: object, factory: Any, *, missing: object) -> _Default:
    if factory is not missing:
        made: _Default = factory
        return made
    return None if value is missing else lambda: value


def _require_scalar(item: object) -> object:
    if not isinstance(item, _SCALARS):
        raise MisuseError(
            f"A set has an element of type {type(item).__qualname__!r}; only plain values in a set have a canonical "
            "form. Use a list, or exclude the field from the fingerprint."
        )
    return item


def _revealed(node: object) -> object:
    # Pydantic's hidden strings print as stars, all alike, and its URLs are objects: both count as what they hold.
    for reveal in ("get_secret_value", "unicode_string"):
        if hasattr(type(node), reveal):
            return getattr(node, reveal)()
    return node
