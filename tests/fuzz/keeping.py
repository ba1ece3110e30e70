"""The inputs that are kept: one file per target, one bytes literal per line, added to and never shortened."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    """Return every input that is kept for a target."""
    lines = (FOLDER / f"{target}.txt").read_text(encoding="ascii").splitlines()
    inputs = [ast.literal_eval(line) for line in lines if line and not line.startswith("#")]
    assert all(isinstance(data, bytes) for data in inputs)
    return inputs


def keep(target: str, inputs: list[bytes]) -> None:
    """Add inputs at the end of a target's file."""
    with (FOLDER / f"{target}.txt").open("a", encoding="ascii") as file:
        file.writelines(f"{data!r}\n" for data in inputs)
