"""The canonical form of plain JSON in one pass: what `canonical(plain(tree))` gives, without the tree in between."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from nebis.core.canonical import DEEPEST_TREE, spelled_integer, spelled_number
from nebis.errors import BodyRefused

JSON_KINDS = frozenset({str, int, dict, list, bool, type(None), float, Decimal})
_TEXT = frozenset({str})


class _Unusual(Exception):
    """Something that is not plain JSON, or that the general way may refuse."""


def json_form(tree: object, depth: int = 0) -> bytes | None:
    """Give the canonical form of a tree of exactly the types that JSON is read as, or None for any other tree.

    None also wherever anything is wrong: the general way then says what. `plain` leaves these types as they are.
    """
    if depth > DEEPEST_TREE:
        return None
    try:
        return (_members(tree, depth + 1) if type(tree) is dict else _forms((tree,), depth)[0]).encode()
    except (_Unusual, BodyRefused, UnicodeEncodeError):
        return None


def _forms(nodes: Iterable[Any], depth: int) -> list[str]:
    """Write text, which is encoded once at the end: UTF-8 keeps the order of code points, so it is sorted alike.

    All of what one container holds, as a call for each node takes longer than the writing.
    """
    forms = []
    for node in nodes:
        kind = type(node)
        if kind is str:
            forms.append(f"s{len(node) if node.isascii() else len(node.encode())}:{node}")
        elif kind is int:
            spelled = spelled_integer(node)
            forms.append(f"n{len(spelled)}:{spelled}")
        elif kind is dict:
            forms.append(_members(node, depth + 1))
        elif kind is list:
            if depth == DEEPEST_TREE:
                raise _Unusual
            forms.append(f"[{''.join(_forms(node, depth + 1))}]")
        elif kind is bool:
            forms.append("t" if node else "f")
        elif node is None:
            forms.append("z")
        elif kind is float or kind is Decimal:
            spelled = spelled_number(node)
            forms.append(f"n{len(spelled)}:{spelled}")
        else:
            raise _Unusual
    return forms


def _members(members: dict[Any, object], below: int) -> str:
    if below > DEEPEST_TREE or not _TEXT.issuperset(map(type, members)):
        raise _Unusual
    pairs = []
    for name, form in zip(members, _forms(members.values(), below), strict=True):
        # No form begins another one, so that joined pairs are in the order of pairs.
        pairs.append(f"s{len(name) if name.isascii() else len(name.encode())}:{name}{form}")
    pairs.sort()
    return f"{{{''.join(pairs)}}}"
