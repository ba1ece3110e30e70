"""When the compiled twins stand in for the Python code."""

import hmac
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from nebis.core import native
from nebis.core.native import chosen, twinned


def signing(is_right: Callable[[bytes, bytes, bytes], bool]) -> SimpleNamespace:
    """A module that signs a key, a beginning and a rest in the right way, or in another."""

    def begun(key: bytes, beginning: bytes) -> SimpleNamespace:
        def sign(rest: bytes) -> bytes:
            return hmac.digest(key, beginning + rest if is_right(key, beginning, rest) else b"other", "sha256")

        return SimpleNamespace(sign=sign)

    return SimpleNamespace(Begun=begun)


def absent() -> Any:
    raise ModuleNotFoundError("it was not compiled")


def test_the_compiled_module_is_used_where_it_is_there_and_wanted() -> None:
    module = signing(lambda *_: True)

    assert chosen({}, lambda: module) is module
    assert chosen({"NEBIS_PURE": ""}, lambda: module) is module
    assert chosen({"NEBIS_PURE": "1"}, lambda: module) is None
    assert chosen({}, absent) is None


@pytest.mark.parametrize("size", [0, 1, 63, 64, 199])
def test_a_module_that_signs_otherwise_is_not_used(size: int) -> None:
    """Else every key that is known would be taken for a new one. A block may be empty, begun, nearly full or full."""
    seldom_wrong = signing(lambda _, beginning, __: len(beginning) != size)
    right_for_these = signing(lambda key, beginning, rest: (len(key), len(beginning + rest)) == (32, 200))

    assert chosen({}, lambda: seldom_wrong) is None
    assert chosen({}, lambda: right_for_these) is right_for_these


def test_a_twin_stands_in_for_what_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(number: int) -> int:
        return number

    class Thing:
        pass

    other = type("Thing", (), {})
    module = SimpleNamespace(counted=lambda definition, number: (definition, number), Thing=other)

    monkeypatch.setattr(native, "compiled", None)
    assert twinned(counted) is counted
    assert twinned(Thing) is Thing
    monkeypatch.setattr(native, "compiled", module)
    assert twinned(Thing) is other
    twin = twinned(counted)
    assert isinstance(twin, partial)
    assert twin(3) == (counted, 3)
    assert twinned(absent) is absent
