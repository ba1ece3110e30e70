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
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from nebis.core.canonical import DEEPEST_TREE, SCALAR_FORMS, Encoded, Model, canonical, model_head
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
    return _plain(command, _ALL if fields is None else _choice(fields), 0)


def unknown_fields(command_type: type, fields: Fields) -> tuple[str, ...]:
    """List the paths whose first name is no field of the command, for a start-up check; empty for an open mapping."""
    layout = _layout(command_type)
    known = set(getattr(command_type, "__annotations__", {}) if layout is None else [part.name for part in layout])
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
    exclude: _Branches | None

    def below(self, name: object) -> _Choice | None:
        """Give the choice for one member, or None if it does not count."""
        if self is _ALL:  # And so is everything below.
            return self
        if not isinstance(name, str):  # Such a name cannot stand in a path, so it is passed over like a list index.
            return self
        exclude = self.exclude.get(name) if self.exclude else None
        if exclude is not None and not exclude:
            return None
        include = self.include
        if include is not None:
            if name not in include:
                return None
            include = include[name] or None
        return _Choice(include, exclude) if include or exclude else _ALL


_ALL = _Choice(None, {})


_Default: TypeAlias = Callable[[], object] | None


class _Part(NamedTuple):
    """One field of a model class, as a fingerprint sees it."""

    name: str
    name_form: bytes
    default: _Default
    """How a field that the caller left out gets its value; None for a field that has to be given."""
    default_form: bytes | None
    """The form of a default that is always the same; None for any other, whose form is made when it is needed."""


_Layout: TypeAlias = tuple[_Part, ...]
_UNCHANGING = frozenset({type(None), bool, str})


def _plain(node: object, choice: _Choice, depth: int) -> object:
    if depth > DEEPEST_TREE:
        raise BodyRefused(f"it is nested deeper than {DEEPEST_TREE} levels")
    kind: type = type(node)
    # By exact type first, as `canonical` does: asking whether it is any of a dozen kinds is slow.
    if kind in _USUAL_SCALARS:
        return node
    if kind is not list and kind is not dict:
        if isinstance(node, _SCALARS):
            return node
        layout = _layout(kind)
        if layout is not None:
            return _model(node, layout, choice, depth)
    # A plain list is no mapping, which is slow to find out.
    if kind is not list and isinstance(node, Mapping):
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


def _model(node: object, layout: _Layout, choice: _Choice, depth: int) -> Encoded | Model:
    given = getattr(node, "__pydantic_fields_set__", None)
    forms: dict[str, bytes] = {}
    pairs = []
    for name, name_form, default, default_form in layout:
        below = choice if choice is _ALL else choice.below(name)
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
        write = SCALAR_FORMS.get(type(value)) if depth < DEEPEST_TREE else None
        form = _form(value, below, depth + 1) if write is None else write(value, 0)
        if default is not None and form == (default_form or _form_of_default(usual, below, depth)):
            continue
        forms[name] = form
        pairs.append(name_form + form)
    kind = type(node)
    called = vars(kind).get(_NAME, kind.__name__)
    extra = getattr(node, "__pydantic_extra__", None)
    if extra:
        fields = {name: Encoded(form) for name, form in forms.items()}
        return Model(name=called, fields=fields, extra=_members(extra, choice, depth))
    # What `canonical` makes of a `Model`; no form begins another one, so that joined pairs are in the order of pairs.
    pairs.sort()
    return Encoded(b"%b{%b}{}" % (model_head(called), b"".join(pairs)))


def _form(node: object, choice: _Choice, depth: int) -> bytes:
    """Give the form of one field, which is most often plain JSON of which everything counts."""
    form = json_form(node, depth) if choice is _ALL else None
    return canonical(_plain(node, choice, depth)) if form is None else form


def _form_of_default(usual: object, choice: _Choice, depth: int) -> bytes | None:
    """Give what to compare with; not by `==`, which takes False for 0 and may be anything in a class of the user's."""
    try:
        return _form(usual, choice, depth + 1)
    except MisuseError:  # A marker such as an "unset" object: only itself is equal to it.
        return None


@lru_cache(maxsize=1024)
def _choice(fields: Fields) -> _Choice:
    if fields.include is None and not fields.exclude:
        return _ALL
    include = None if fields.include is None else _branches(fields.include)
    return _Choice(include, _branches(fields.exclude))


@lru_cache(maxsize=4096)
def _layout(kind: type) -> _Layout | None:
    """Give the fields of a model class and their defaults, or None. The library that made it is never imported."""
    if hasattr(kind, "__pydantic_validator__"):
        # The second spelling is how models, but not dataclasses, had it before pydantic 2.10.
        described: dict[str, Any] = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", {})
        return tuple(_pydantic_part(name, field) for name, field in described.items())
    if hasattr(kind, "__struct_fields__"):
        msgspec = sys.modules["msgspec"]
        return tuple(_part(field, missing=msgspec.NODEFAULT) for field in msgspec.structs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple(_part(field, missing=dataclasses.MISSING) for field in dataclasses.fields(kind))
    return None


def _pydantic_part(name: str, field: Any) -> _Part:
    default: _Default
    # A factory that looks at the other fields cannot be asked again without validating the whole model again.
    if field.is_required() or getattr(field, "default_factory_takes_validated_data", None):
        default = None
    else:
        default = field.default_factory or (lambda: field.default)
    return _Part(name, canonical(name), default, None)


def _part(field: Any, *, missing: object) -> _Part:
    name_form, value = canonical(field.name), field.default
    if field.default_factory is not missing:
        return _Part(field.name, name_form, field.default_factory, None)
    if value is missing:
        return _Part(field.name, name_form, None, None)
    # Only what nobody can change is the same for ever.
    form = canonical(value) if type(value) in _UNCHANGING else None
    return _Part(field.name, name_form, lambda: value, form)


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
