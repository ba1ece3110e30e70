"""Which requests a rule is for: a method and a path, written as people write routes."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.errors import ConfigError

ANYTHING = "*"
THE_REST = "**"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A method and the segments of a path: `*` or `{name}` stands for one segment, a final `**` for all that follow."""

    method: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read a pattern such as `POST /accounts/{id}/payments`, or raise `ConfigError`."""
        method, _, path = text.partition(" ")
        segments = tuple(ANYTHING if _is_name(segment) else segment for segment in path.split("/")[1:])
        if not method.isupper() or not path.startswith("/") or THE_REST in segments[:-1]:
            raise ConfigError([f"{text!r} is no pattern; write a method and a path, such as 'POST /payments/*'"])
        return cls(method, segments)

    @property
    def is_literal(self) -> bool:
        """Tell whether it is for one path alone."""
        return ANYTHING not in self.segments and THE_REST not in self.segments

    @property
    def path(self) -> str:
        """Return the path as it is written, with what stands for other segments."""
        return "/" + "/".join(self.segments)

    def matches(self, method: str, path: str) -> bool:
        """Tell whether a request is meant; in one pass over its path (SEC37)."""
        if method != self.method:
            return False
        given = path.split("/")[1:]
        if tuple(given) == self.segments:  # Each segment stands for itself at least.
            return True
        if self.segments and self.segments[-1] == THE_REST:
            wanted = self.segments[:-1]
            return len(given) > len(wanted) and _are_alike(wanted, given)
        return len(given) == len(self.segments) and _are_alike(self.segments, given)


def _are_alike(wanted: tuple[str, ...], given: list[str]) -> bool:
    return all(want in (have, ANYTHING) for want, have in zip(wanted, given, strict=False))


def _is_name(segment: str) -> bool:
    return len(segment) > 2 and segment.startswith("{") and segment.endswith("}")
