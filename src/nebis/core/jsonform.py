"""The canonical form of plain JSON in one pass: what `canonical(plain(tree))` gives, without the tree in between."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from nebis.core.canonical import DEEPEST_TREE, spelled_integer, spelled_number
from nebis.errors import BodyRefused


class _Sizes(dict[int, str]):
    """What a text of so many bytes begins with; the usual ones are spelled already."""

    def __missing__(self, size: int) -> str:
        return f"s{size}:"


_SIZES = _Sizes({size: f"s{size}:" for size in range(1024)})


class _Unusual(Exception):
    """Something that is not plain JSON, or that the general way may refuse."""


def json_form(tree: object, depth: int = 0) -> bytes | None:
    """Give the canonical form of a tree of exactly the types that JSON is read as, or None for any other tree.

    None also wherever anything is wrong: the general way then says what. `plain` leaves these types as they are.
    """
    if depth > DEEPEST_TREE:
        return None
    try:
        return (_members(tree, depth + 1) if type(tree) is dict else _form(tree, depth)).encode()
    except (_Unusual, BodyRefused, UnicodeEncodeError):
        return None


def _form(node: Any, depth: int) -> str:
    """Write text, which is encoded once at the end: UTF-8 keeps the order of code points, so it is sorted alike."""
    kind = type(node)
    if kind is str:
        return f"{_SIZES[len(node) if node.isascii() else len(node.encode())]}{node}"
    if kind is dict:
        return _members(node, depth + 1)
    if kind is list:
        return _items(node, depth + 1)
    if kind is bool:
        return "t" if node else "f"
    if node is None:
        return "z"
    if kind is int:
        spelled = spelled_integer(node)
    elif kind is float or kind is Decimal:
        spelled = spelled_number(node)
    else:
        raise _Unusual
    return f"n{len(spelled)}:{spelled}"


# Text is written where it is found, as most of what a container holds is text and a call takes longer than the writing.


def _members(members: dict[Any, Any], below: int) -> str:
    if below > DEEPEST_TREE:
        raise _Unusual
    pairs = []
    for name, node in members.items():
        if type(name) is not str:
            raise _Unusual
        form = (
            f"{_SIZES[len(node) if node.isascii() else len(node.encode())]}{node}"
            if type(node) is str
            else _form(node, below)
        )
        # No form begins another one, so that joined pairs are in the order of pairs.
        pairs.append(f"{_SIZES[len(name) if name.isascii() else len(name.encode())]}{name}{form}")
    pairs.sort()
    return f"{{{''.join(pairs)}}}"


def _items(items: list[Any], below: int) -> str:
    if below > DEEPEST_TREE:
        raise _Unusual
    forms = [
        f"{_SIZES[len(node) if node.isascii() else len(node.encode())]}{node}"
        if type(node) is str
        else _form(node, below)
        for node in items
    ]
    return f"[{''.join(forms)}]"
