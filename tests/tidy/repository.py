"""The files of this repository, as the style tests see them."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "nebis"

_GENERATED = frozenset({"__pycache__", "build", "dist", "htmlcov"})
_TEXT_SUFFIXES = frozenset(
    {"", ".cfg", ".css", ".html", ".js", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml"}
)


def text_files(folder: Path = ROOT) -> Iterator[Path]:
    """Yield every text file that people wrote; hidden folders are tools' own, except the one that CI runs."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            is_hidden = entry.name.startswith(".") and entry.name != ".ci"
            if not is_hidden and entry.name not in _GENERATED and not entry.name.endswith(".egg-info"):
                yield from text_files(entry)
        elif entry.suffix in _TEXT_SUFFIXES and not entry.name.startswith(".coverage"):
            yield entry


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
