"""The `nebis` command.

The command is installed with the package, its libraries only with the extra: importing this module must work without
them.
"""

import sys

_LIBRARIES_OF_THE_EXTRA = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line, or exit with status 2 and say which extra to install."""
    try:
        from nebis.cli.app import run  # noqa: PLC0415 - a missing library must become advice, not a traceback.
    except ModuleNotFoundError as missing:
        if missing.name not in _LIBRARIES_OF_THE_EXTRA:
            raise
        print(
            f"The nebis command needs {missing.name}, which is not installed. Run: pip install 'nebis[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run())
