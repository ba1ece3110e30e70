"""When the compiled twins are used, and that nothing is lost without them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from hatch_build import _compile
from nebis.core import native
from tests.tidy.repository import ROOT

SOURCES = sorted((ROOT / "src" / "native").glob("*.c"))
TELL = """
from nebis.core.native import compiled
from nebis.core.secret import Purpose, Secret
from nebis.core.jsonform import json_form
print(compiled is None, Secret(bytes(32)).begun(Purpose.IDENTITY, b"a").sign(b"b").hex(), json_form({"b": 1, "a": 20}))
"""


PAY = """
import sys
from typing import Any
from nebis import Local, Nebis
from nebis.core.native import compiled

with Nebis(sys.argv[1]) as nebis:

    @nebis.operation("pay", effects=Local)
    def pay(command: dict[str, Any]) -> str:
        return f"by the one whose core is compiled: {compiled is not None}"

    for number, command in enumerate(({"amount": 4200, "to": "Zoë"}, {"rows": [1.5, 10**30, None]})):
        key = f"8e03978e-40d5-43e8-bc93-6894a57f932{number}"
        told = pay.execute(key=key, tenant="acct_1", command=command)
        print(told.result, told.operation_id, told.is_replay)
"""


def run(text: str, *arguments: str, pure: str) -> list[str]:
    """Run a program with the compiled core or without it, and return its lines."""
    command = [sys.executable, "-c", text, *arguments]
    environment = {**os.environ, "NEBIS_PURE": pure}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()


def test_both_ways_say_the_same() -> None:
    [pure], [usual] = run(TELL, pure="1"), run(TELL, pure="")

    assert pure.split()[0] == "True"
    assert usual.split()[0] == str(native.compiled is None)
    assert pure.split()[1:] == usual.split()[1:]


@pytest.mark.parametrize(("first", "second"), [("1", ""), ("", "1")])
def test_a_key_that_one_kind_of_process_used_is_known_to_the_other(tmp_path: Path, first: str, second: str) -> None:
    """P19."""
    store = f"sqlite:///{tmp_path / 'shop.db'}"

    told = run(PAY, store, pure=first)

    assert all(line.endswith("False") for line in told)
    assert run(PAY, store, pure=second) == [f"{line.removesuffix('False')}True" for line in told]


def test_without_a_compiler_there_is_no_module_and_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "_native.so"
    built.write_bytes(b"of older sources")
    monkeypatch.setenv("CC", "no-such-compiler")

    assert _compile(SOURCES, built) == "no-such-compiler: No such file or directory"
    assert not built.exists()


def test_a_python_without_its_global_lock_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)

    assert "global lock" in (_compile(SOURCES, tmp_path / "_native.so") or "")
    assert not list(tmp_path.glob("_native*"))


def test_what_does_not_compile_leaves_no_module_and_a_reason(tmp_path: Path) -> None:
    if _compile(SOURCES, tmp_path / "_native.so") is not None:
        pytest.skip("there is no C compiler here")
    broken = tmp_path / "broken.c"
    broken.write_text("int f(void) { return; this is no C }\n")

    assert "broken.c" in (_compile([broken], tmp_path / "_native.so") or "")
    assert not list(tmp_path.glob("_native*"))
