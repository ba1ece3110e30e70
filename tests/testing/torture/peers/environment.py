"""An environment of its own for each library, made when it is first needed and kept in the cache."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.testing.torture.peers.peers import Peer

_INSTALL_SECONDS = 600


def interpreter_of(peer: Peer) -> Path:
    """Return the interpreter that has this library; install it if it is not there."""
    digest = hashlib.sha256("\n".join((sys.version, *peer.requirements)).encode()).hexdigest()[:8]
    root = _cache() / f"{peer.package}-{digest}"
    root.parent.mkdir(parents=True, exist_ok=True)
    interpreter, stamp = root / "bin" / "python", root / "installed"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(root, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(root)])
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements]
            _run([str(interpreter), *install])
            stamp.touch()
    return interpreter


def versions_of(peer: Peer) -> dict[str, str]:
    """Return what is installed beside the library, by name."""
    listed = _run([str(interpreter_of(peer)), "-m", "pip", "list", "--disable-pip-version-check", "--format=json"])
    return {entry["name"].lower(): entry["version"] for entry in json.loads(listed)}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nebis-tests" / "peers"


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed; is there a network? It said:\n{done.stderr[-2000:]}")
    return done.stdout
