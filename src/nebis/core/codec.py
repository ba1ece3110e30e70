"""Codecs between typed values and stored JSON bytes, chosen once by annotation.

`codec_for` reads an annotation at registration and refuses there whatever could not be restored in type and value.
Nothing stored ever names code to run: bytes are checked against the annotation of the code that reads them (SEC33,
SEC34).
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from json.scanner import make_scanner
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, cast, overload

from nebis.core.codec_annotation import AnnotationReader, unresolved
from nebis.core.codec_model import Model
from nebis.core.codec_shape import DEPTH_LIMIT, Misfit, Shape, require_json
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
    _is_model: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_model", isinstance(self.shape, Model))

    def encode(self, value: T) -> bytes:
        """Return compact JSON, or raise `ResultUnstorable` for a value that does not fit its annotation."""
        try:
            if self._is_model:
                return cast("Model", self.shape).encode(value)
            raw = self.shape.plain(value)
            if self.is_recursive:
                require_json(raw)
            return "".join(_write(raw, 0)).encode()
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
        value: T
        try:
            if self._is_model:
                value = cast("Model", shape).decode(data)
            else:
                raw = _parsed(data)
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


def _parsed(data: bytes) -> Any:
    text = data.decode()
    # The scanner alone, without a look for white space on both sides: there is none in what we write.
    try:
        raw, end = _scan(text, 0)
    except (StopIteration, ValueError):
        end = -1
    if end != len(text):
        raw = _DECODER.decode(text)
    # We never write a surrogate as an escape; whoever did may have left half of a pair, which no text may hold.
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        json.dumps(raw, ensure_ascii=False).encode()
    return raw


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")


_Write: TypeAlias = Callable[[Any, int], Iterable[str]]


def _writer(make: Callable[..., _Write] | None) -> _Write:
    """Return what writes a value as parts of text, made once: `JSONEncoder.encode` makes a new one for each value.

    It does not look out for a value that contains itself: no shape lets one through.
    """
    usual = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if make is None:  # An interpreter without the C half of `json`.
        return lambda value, _: usual.iterencode(value)
    sort_keys = skipkeys = allow_nan = False
    return make(None, usual.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, skipkeys, allow_nan)


_write = _writer(json.encoder.c_make_encoder)  # type: ignore[attr-defined]  # It is there, None without the C half.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_scan = make_scanner(_DECODER)  # type: ignore[arg-type]  # Its stub names itself as what it reads its hooks from.
