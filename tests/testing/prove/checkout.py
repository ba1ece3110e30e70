"""A small repository of our own, in which commits cost nothing."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Checkout:
    """A working tree with a history."""

    root: Path

    @classmethod
    def create(cls, root: Path) -> "Checkout":
        checkout = cls(root)
        (root / "tests" / "matrix").mkdir(parents=True)
        (root / ".gitignore").write_text("/.nebis/\n")
        checkout._git("init", "--quiet")
        return checkout

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> str:
        """Commit everything, and return the commit."""
        self._git("add", "--all")
        self._git("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "--message=One step")
        return self._git("rev-parse", "HEAD")

    def _git(self, *command: str) -> str:
        done = subprocess.run(["git", *command], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()
