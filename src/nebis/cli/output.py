"""What commands say: data on stdout, everything else on stderr, colour only where a person is looking."""

from __future__ import annotations

import json
import os
import sys
from io import StringIO
from typing import TextIO

import typer
from rich.console import Console, RenderableType


def say(text: str) -> None:
    """Print to stdout at once. Whoever stopped reading is not an error: the command goes on to its end."""
    _write(sys.stdout, text)


def say_json(value: object) -> None:
    """Print a value for programs."""
    say(json.dumps(value, indent=2))


def complain(text: str) -> None:
    """Print one line to stderr."""
    _write(sys.stderr, f"nebis: {' '.join(text.split())}")


def is_watched() -> bool:
    """Tell whether stdout is a terminal, so that a person reads what is printed."""
    return sys.stdout.isatty()


def show(picture: RenderableType, *, is_whole: bool = False) -> None:
    """Print something laid out for a terminal, in colour unless NO_COLOR or the terminal forbids it.

    What must stay whole is left to the terminal to wrap, so that it can be copied as one line.
    """
    terminal = Console()
    canvas = StringIO()
    Console(
        file=canvas,
        width=terminal.width,
        force_terminal=terminal.is_terminal,
        color_system="standard" if terminal.color_system else None,
        highlight=False,
    ).print(picture, soft_wrap=is_whole)
    say(canvas.getvalue().rstrip("\n"))


def width() -> int:
    """Return how many characters fit on a line of the terminal."""
    return Console().width


def show_help(context: typer.Context) -> None:
    """Print the help of a command that was called without what it needs."""
    text = context.get_help()
    if text.strip():  # Newer versions of typer have printed it themselves by now.
        say(text)


def finish() -> None:
    """Hand over what is still buffered, before the interpreter would try and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence(stream)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
