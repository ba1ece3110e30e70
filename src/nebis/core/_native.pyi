from collections.abc import Callable, Generator, Mapping
from typing import Any, Self

class Begun:
    def __new__(cls, key: bytes, beginning: bytes) -> Self: ...
    def sign(self, rest: bytes, /) -> bytes: ...

class Marking:
    def __new__(
        cls, kind: type, places: dict[str, Any], begun: Begun, version: int, before: bytes, behind: bytes, terms: object
    ) -> Self: ...
    def of(self, key: str, tenant: str, command: object, /) -> Any | None: ...

def json_form(definition: Callable[..., bytes | None], tree: object, depth: int = 0, /) -> bytes | None: ...
def go_on(
    definition: Callable[..., tuple[bool, Any]],
    flow: Generator[Any, Any, Any],
    /,
    given: object = None,
    performs: Mapping[type, Callable[[Any, Any], Any]] = ...,
    turn: object = None,
    error: BaseException | None = None,
) -> tuple[bool, Any]: ...
