"""Codecs between typed values and stored JSON bytes, chosen once by annotation.

`codec_for` reads an annotation at registration and refuses there whatever could not be restored in type and value.
Nothing stored ever names code to run: bytes are checked against the annotation of the code that reads them (SEC33,
SEC34).
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, overload

from nebis.core.codec_annotation import AnnotationReader, unresolved
from nebis.core.codec_model import Model
from nebis.core.codec_shape import DEPTH_LIMIT, NOTHING, JsonValue, Misfit, Shape, Table, require_json
from nebis.core.jsontext import JsonText, json_text, read_by_standard
from nebis.errors import ConfigError, RecordCorrupt, ResultUnstorable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[T]):
    """The stored form of one type: `decode(encode(value))` equals `value` in type and value."""

    name: str
    shape: Shape
    is_recursive: bool = False
    lenient: Shape | None = None
    """The same shape, but for fields that the type no longer has; None where there is no difference."""
    text: JsonText | None = field(default=None, repr=False, compare=False)
    """How JSON is written and read; chosen when it is first needed."""
    _is_model: bool = field(init=False, repr=False)
    _flat: frozenset[type] = field(init=False, repr=False)
    """If the type is a dict with any text as names: the classes of values that are their own stored form."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_model", isinstance(self.shape, Model))
        object.__setattr__(self, "_flat", self.shape.flat if isinstance(self.shape, Table | JsonValue) else NOTHING)
        assert float not in self._flat  # What was only glanced at may have an integer for one.

    def _chosen_text(self) -> JsonText:
        text = json_text()
        object.__setattr__(self, "text", text)
        return text

    def encode(self, value: T) -> bytes:
        """Return compact JSON, or raise `ResultUnstorable` for a value that does not fit its annotation."""
        text = self.text or self._chosen_text()
        try:
            # Most values are like this, and nothing is to be done with them but to write them.
            given: Any = value
            if self._flat and type(given) is dict and self._flat.issuperset(map(type, given.values())):
                try:
                    return text.write_flat(given)
                except TypeError:
                    pass  # It has a name that is no text, or something to be written in a slower way.
            if self._is_model:
                return cast("Model", self.shape).encode(value)
            raw = self.shape.plain(value)
            if self.is_recursive:
                require_json(raw)
            return text.write(raw)
        except Misfit as misfit:
            detail = str(misfit)
        except UnicodeEncodeError:
            detail = ": text with a lone surrogate has no UTF-8 form"
        except ValueError:
            detail = ": a number is too long to be read back"
        except RecursionError:
            detail = f": nested deeper than {DEPTH_LIMIT} levels"
        # Raised out here so that the first error, which may quote the value, is not kept as its context (SEC24).
        raise ResultUnstorable(f"{self.name}{detail}")

    def decode(self, data: bytes) -> T:
        """Return the value that was encoded, or raise `RecordCorrupt` for any other bytes (SEC34)."""
        return self._restored(self.shape, data)

    def decode_result(self, data: bytes) -> T:
        """Return a result that older code may have stored: a field that its type lost since is left out (F118).

        What was done is done, and its answer must not be lost with a field; a command is never read like this.
        """
        return self._restored(self.lenient or self.shape, data)

    def _restored(self, shape: Shape, data: bytes) -> T:
        text = self.text or self._chosen_text()
        value: T
        try:
            if self._is_model:
                value = cast("Model", shape).decode(data)
            else:
                try:
                    raw = text.glance(data)
                except ValueError:
                    raw = read_by_standard(data)
                # Nobody else has what was just read, so that it need not be copied; all its names are text.
                if self._flat and type(raw) is dict and self._flat.issuperset(map(type, raw.values())):
                    return raw  # type: ignore[return-value]  # Such a dict is what `plain` lets pass.
                raw = text.settle(raw, data)
                if self.is_recursive:
                    require_json(raw)
                value = shape.restore(raw)
        except Misfit as misfit:
            detail = str(misfit)
        except (ValueError, RecursionError):
            detail = ": not JSON as Nebis writes it"
        else:
            return value
        raise RecordCorrupt(f"{self.name}{detail}")


@overload
def codec_for(annotation: type[T], *, where: str = ...) -> Codec[T]: ...
@overload
def codec_for(annotation: object, *, where: str = ...) -> Codec[Any]: ...
def codec_for(annotation: object, *, where: str = "") -> Codec[Any]:
    """Choose the codec of an annotation, or raise `ConfigError` with every part of it that cannot be stored.

    `where` names the place of the annotation for the reader of that error, such as an operation and its parameter.
    """
    reader = AnnotationReader()
    shape = reader.shape_of(annotation)
    if reader.faults:
        raise ConfigError([f"{where}: {fault}" if where else fault for fault in reader.faults])
    lenient = AnnotationReader(ignores_unknown=True).shape_of(annotation)
    return Codec(name=shape.name, shape=shape, is_recursive=reader.is_recursive, lenient=lenient)


def annotations_of(function: Callable[..., object]) -> dict[str, object]:
    """Return the resolved annotations of a function, its result under "return", or raise `ConfigError`.

    A parameter without annotation is absent; hand `inspect.Parameter.empty` to `codec_for` to have it refused.
    """
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigError([unresolved(function, error)]) from error
