"""Where the browser comes from: the machine's own Chromium, or Debian's, unpacked into a cache without root."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright

PACKAGE = "chromium-headless-shell"
INSTALLED = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")


def launch(playwright: Playwright) -> Browser:
    """Start a headless Chromium, getting one first if the machine has none."""
    found = next((path for name in INSTALLED if (path := shutil.which(name))), None)
    environment: dict[str, str | float | bool] = dict(os.environ)
    if found is None:
        root = unpacked()
        found = str(root / "usr/lib/chromium" / PACKAGE)
        libraries = [str(path) for path in (root / "usr/lib").rglob("*") if path.is_dir() and list(path.glob("*.so*"))]
        environment |= {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_PATH": str(root / "etc/fonts")}
    # Chromium has no sandbox for root, who runs the tests in most containers; it opens nothing but our own page.
    return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], env=environment)


def unpacked() -> Path:
    """Return a folder with Debian's Chromium and the libraries that this machine lacks for it."""
    if shutil.which("apt-get") is None:
        pytest.skip("There is no Chromium here, and no apt-get to bring one. Install Chromium and run this again.")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nebis-tests" / "chromium"
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / "lock"):
        if not (cache / "complete").exists():
            _unpack(cache)
            (cache / "complete").touch()
    return cache / "root"


def _unpack(cache: Path) -> None:
    options: list[str] = []
    if _said(["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE]) is None:
        # Lists of packages in a folder of our own: those of the machine are missing, and only root may fetch them.
        for folder in ("lists/partial", "archives/partial"):
            (cache / folder).mkdir(parents=True, exist_ok=True)
        options = ["-o", f"Dir::State::lists={cache}/lists", "-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=1"]
        _said(["apt-get", *options, "update"])
    plan = _said(["apt-get", *options, "install", "--simulate", "--no-install-recommends", PACKAGE])
    assert plan is not None, f"apt-get does not know {PACKAGE}. Install Chromium: apt-get install -y chromium"
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    packages = cache / "packages"
    packages.mkdir(exist_ok=True)
    subprocess.run(["apt-get", *options, "download", *names], cwd=packages, check=True, capture_output=True)
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(cache / "root")], check=True, capture_output=True)


def _said(command: list[str]) -> str | None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other test run is doing the same."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
