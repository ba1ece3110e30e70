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


def told(**environment: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", TELL], check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    return ran.stdout.split()


def test_both_ways_say_the_same() -> None:
    pure, usual = told(NEBIS_PURE="1"), told(NEBIS_PURE="")

    assert pure[0] == "True"
    assert usual[0] == str(native.compiled is None)
    assert pure[1:] == usual[1:]


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
