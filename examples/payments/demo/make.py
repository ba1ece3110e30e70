"""`make` as a parent: interrupted alone, it waits for its children without telling them."""

import os
import signal
from pathlib import Path

_INTERRUPT = 1 << (signal.SIGINT - 1)


class Make:
    """The `make` that started us, if one did and Linux shows it to us."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._place = Path(f"/proc/{self._pid}")
        self._is_make = self._name() == "make"
        self._caught_interrupts = self._catches_interrupts()

    def has_ended(self) -> bool:
        """Tell whether it is gone, or has been interrupted: it then no longer catches interrupts."""
        is_interrupted = self._caught_interrupts and not self._catches_interrupts()
        return self._is_make and (os.getppid() != self._pid or is_interrupted)

    def _name(self) -> str:
        try:
            return (self._place / "comm").read_text().strip()
        except OSError:
            return ""

    def _catches_interrupts(self) -> bool:
        try:
            fields = dict(line.split(":", 1) for line in (self._place / "status").read_text().splitlines())
        except OSError:
            return False
        return bool(int(fields["SigCgt"], 16) & _INTERRUPT)
