"""When the compiled twins stand in for the Python code."""

import hmac
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from nebis.core import native
from nebis.core.native import chosen, twinned


def signing(*, is_right: bool) -> SimpleNamespace:
    """A module that signs, in the right way or in another."""

    def begun(key: bytes, beginning: bytes) -> SimpleNamespace:
        def sign(rest: bytes) -> bytes:
            return hmac.digest(key, beginning + rest if is_right else rest, "sha256")

        return SimpleNamespace(sign=sign)

    return SimpleNamespace(Begun=begun)


def absent() -> Any:
    raise ModuleNotFoundError("it was not compiled")


def test_the_compiled_module_is_used_where_it_is_there_and_wanted() -> None:
    module = signing(is_right=True)

    assert chosen({}, lambda: module) is module
    assert chosen({"NEBIS_PURE": ""}, lambda: module) is module
    assert chosen({"NEBIS_PURE": "1"}, lambda: module) is None
    assert chosen({}, absent) is None


def test_a_module_that_signs_otherwise_is_not_used() -> None:
    """Else every key that is known would be taken for a new one."""
    assert chosen({}, lambda: signing(is_right=False)) is None


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
