"""Compiles `nebis.core._native` where there are a C compiler and the headers of Python and OpenSSL.

Without, Nebis is plain Python, which does the same (`src/nebis/core/native.py`) for fewer requests per second.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-Wall", "-Wextra")


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled module to what is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's signature.
        """Compile beside the package, where an editable install finds it too."""
        built = Path(self.root, "src", "nebis", "core", f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")
        if self.target_name != "wheel" or os.environ.get("NEBIS_PURE"):
            return
        trouble = _compile(sorted(Path(self.root, "src", "native").glob("*.c")), built)
        if trouble:
            self.app.display_warning(f"nebis.core._native is left out, and all runs as plain Python: {trouble}")
            return
        build_data["artifacts"].append(f"/{built.relative_to(self.root)}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compile(sources: list[Path], built: Path) -> str | None:
    """Return why there is no module, or nothing."""
    built.unlink(missing_ok=True)  # One of older sources must not stay.
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it relies on the global lock, which this Python would switch on again for it"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    # Under another name first: whoever starts meanwhile must not load half of it.
    unfinished = built.with_suffix(".part")
    command = [*compiler, *_FLAGS, f"-I{sysconfig.get_path('include')}", *map(str, sources), "-o", str(unfinished)]
    try:
        ran = subprocess.run([*command, "-lcrypto"], check=False, capture_output=True, text=True)  # noqa: S603
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    if ran.returncode:
        return ran.stderr.strip().splitlines()[0] if ran.stderr.strip() else f"{compiler[0]} failed"
    unfinished.replace(built)
    return None
