"""What to say when the library of an extra is not installed."""


def missing(library: str, *, extra: str) -> ImportError:
    """Return the error that names the extra which brings this library."""
    return ImportError(f"{library} is not installed; run: pip install 'nebis[{extra}]'", name=library)
