"""The canonical form of plain JSON in one pass: what `canonical(plain(tree))` gives, without the tree in between."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from nebis.core.canonical import DEEPEST_TREE, spelled_integer, spelled_number
from nebis.core.native import twinned
from nebis.errors import BodyRefused

_SIZES: Final = tuple(f"s{size}:" for size in range(1024))
"""What a text of so many bytes begins with; the usual ones are spelled already."""
_SPELLED: Final = len(_SIZES)


class _Unusual(Exception):
    """Something that is not plain JSON, or that the general way may refuse."""


@twinned
def json_form(tree: object, depth: int = 0) -> bytes | None:
    """Give the canonical form of a tree of exactly the types that JSON is read as, or None for any other tree.

    None also wherever anything is wrong: the general way then says what. `plain` leaves these types as they are.
    """
    if depth > DEEPEST_TREE:
        return None
    try:
        text = _members(tree, depth + 1) if type(tree) is dict else _form(tree, depth)
        if text.isascii():
            return text.encode()
        # What a text begins with counts its bytes, so that now each of them is written as a character.
        return _form(_by_bytes(tree), depth).encode("latin-1")
    except (_Unusual, BodyRefused, UnicodeEncodeError):
        return None


def _by_bytes(node: Any) -> Any:
    """Return a tree whose text has a character for each byte of its UTF-8, which keeps the order of code points."""
    kind = type(node)
    if kind is str:
        return node.encode().decode("latin-1")
    if kind is dict:
        return {_by_bytes(name): _by_bytes(member) for name, member in node.items()}
    return [_by_bytes(item) for item in node] if kind is list else node


def _form(node: Any, depth: int) -> str:
    """Write text, which is encoded once at the end: it is sorted alike."""
    kind = type(node)
    if kind is int:
        spelled = spelled_integer(node)
    elif kind is str:
        size = len(node)
        return f"{_SIZES[size] if size < _SPELLED else f's{size}:'}{node}"
    elif kind is dict:
        return _members(node, depth + 1)
    elif kind is list:
        return _items(node, depth + 1)
    elif kind is bool:
        return "t" if node else "f"
    elif node is None:
        return "z"
    elif kind is float or kind is Decimal:
        spelled = spelled_number(node)
    else:
        raise _Unusual
    return f"n{len(spelled)}:{spelled}"


# Text and integers are written where they are found: most members are one of them, and a call takes longer.
def _members(members: dict[Any, Any], below: int) -> str:
    if below > DEEPEST_TREE:
        raise _Unusual
    pairs = []
    for name, node in members.items():
        if type(name) is not str:
            raise _Unusual
        size = len(name)
        begin = _SIZES[size] if size < _SPELLED else f"s{size}:"
        # No form begins another one, so that joined pairs are in the order of pairs.
        if type(node) is str:
            size = len(node)
            pairs.append(f"{begin}{name}{_SIZES[size] if size < _SPELLED else f's{size}:'}{node}")
        elif type(node) is int:
            spelled = spelled_integer(node)
            pairs.append(f"{begin}{name}n{len(spelled)}:{spelled}")
        else:
            pairs.append(f"{begin}{name}{_form(node, below)}")
    pairs.sort()
    return f"{{{''.join(pairs)}}}"


def _items(items: list[Any], below: int) -> str:
    if below > DEEPEST_TREE:
        raise _Unusual
    return f"[{''.join([_form(node, below) for node in items])}]"
