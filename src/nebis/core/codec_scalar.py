"""Types whose values are one JSON scalar."""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from nebis.core.codec_shape import NOTHING, Misfit, not_a, type_name


class Refusal(ValueError):
    """A scalar's own reason to refuse a value; its text contains no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A type whose values are one JSON scalar.

    An instance of a subclass is kept as the type itself (a driver's UUID, a marked string), and is refused when that
    would change its value.
    """

    cls: type
    wire: type
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]
    accepts: tuple[type, ...] = ()
    refuses: tuple[type, ...] = ()
    is_hashable: bool = True
    verbatim: frozenset[type] = NOTHING

    @property
    def name(self) -> str:
        return "None" if self.cls is type(None) else type_name(self.cls)

    @property
    def types(self) -> frozenset[type]:
        return frozenset({self.cls})

    def plain(self, value: Any) -> Any:
        if type(value) is not self.cls:
            return self._plain_of_heir(value)
        try:
            return self.dump(value)
        except (ValueError, ArithmeticError) as error:
            raise self._unfit(error) from None

    def _plain_of_heir(self, value: Any) -> Any:
        if not isinstance(value, (self.cls, *self.accepts)) or isinstance(value, self.refuses):
            raise not_a(self.name, value)
        try:
            raw = self.dump(value)
            is_kept = self.load(raw) == value
        except (ValueError, ArithmeticError) as error:
            raise self._unfit(error) from None
        if not is_kept:
            raise Misfit(f"{type_name(type(value))} would lose its value as {self.name}; convert it yourself")
        return raw

    def restore(self, raw: Any) -> Any:
        if type(raw) is not self.wire:
            raise not_a(f"the stored form of {self.name}", raw)
        try:
            return self.load(raw)
        except (ValueError, ArithmeticError, LookupError, OSError) as error:  # OSError: a zone that is a folder.
            raise self._unfit(error) from None

    def _unfit(self, error: Exception) -> Misfit:
        # Only a refusal of our own is quoted: the text of any other error may contain the value (SEC24).
        return Misfit(str(error) if isinstance(error, Refusal) else f"not a storable {self.name}")


def enum_scalar(cls: type[Enum]) -> Scalar:
    """Store a member by its name, and a set of flags by its number, because a combination has no name."""
    if issubclass(cls, Flag):
        return Scalar(cls=cls, wire=int, dump=operator.attrgetter("value"), load=partial(_load_flags, cls))
    return Scalar(cls=cls, wire=str, dump=operator.attrgetter("name"), load=cls.__members__.__getitem__)


def _load_flags(cls: type[Flag], number: int) -> Flag:
    """Restore a set of flags; some versions of Python drop bits that they do not know instead of refusing them."""
    flags = cls(number)
    if flags.value != number:
        raise ValueError("unknown flags")
    return flags


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Refusal("NaN and infinity are not equal to what a replay would return")
    return value


def _dump_decimal(value: Decimal) -> str:
    # As a Decimal, whatever an heir of it makes of its text.
    return Decimal.__str__(value if Decimal.is_finite(value) else _finite_decimal(value))


def _finite_decimal(value: Decimal | str) -> Decimal:
    number = Decimal(value)
    if not number.is_finite():
        raise Refusal("NaN and infinity are no amounts")
    return number


def _dump_datetime(value: datetime) -> str:
    text = datetime.isoformat(value)
    if value.tzinfo is UTC:
        return text
    if _is_fixed(value.tzinfo):
        return text
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        # The offset keeps the instant even when the zone's rules change; the key keeps the zone.
        return f"{text}[{value.tzinfo.key}]"
    raise Refusal("its time zone is neither a datetime.timezone nor a named zoneinfo.ZoneInfo")


def _is_fixed(zone: tzinfo | None) -> bool:
    # Python does not read back the microseconds of an offset that it writes.
    if isinstance(zone, timezone) and zone.utcoffset(None).microseconds:
        raise Refusal("its offset from UTC is not a whole number of seconds")
    return zone is None or isinstance(zone, timezone)


def _load_datetime(raw: str) -> datetime:
    text, bracket, key = raw.partition("[")
    stamp = datetime.fromisoformat(text)
    if not bracket:
        return stamp
    if stamp.tzinfo is None:
        raise Refusal("a stored zone needs its offset")
    zone = ZoneInfo(key.removesuffix("]"))
    # The stored offset tells the two passes of a repeated hour apart.
    for fold in (0, 1):
        local = stamp.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == stamp.utcoffset():
            return local
    return stamp.astimezone(zone)


def _dump_time(value: time) -> str:
    if not _is_fixed(value.tzinfo):
        raise Refusal("its time zone is not a datetime.timezone")
    return time.isoformat(value)


def _dump_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _load_bytes(raw: str) -> bytes:
    return base64.b64decode(raw, validate=True)


_MICROSECOND: Final = timedelta(microseconds=1)


def _unchanged(value: Any) -> Any:
    return value


def _verbatim(cls: type, *, dump: Callable[[Any], Any] = _unchanged, refuses: tuple[type, ...] = ()) -> Scalar:
    """Make the shape of a type that JSON has too; `dump` is for its heirs."""
    return Scalar(cls=cls, wire=cls, dump=dump, load=_unchanged, refuses=refuses, verbatim=frozenset({cls}))


SCALARS: Final[Mapping[type, Scalar]] = {
    scalar.cls: scalar
    for scalar in (
        _verbatim(type(None)),
        _verbatim(bool),
        _verbatim(int, dump=int, refuses=(bool,)),
        # Every type checker lets an int stand for a float; it is kept as the float that the annotation promises.
        Scalar(
            cls=float,
            wire=float,
            dump=lambda value: _finite(float(value)),
            load=_finite,
            accepts=(int,),
            refuses=(bool,),
        ),
        _verbatim(str, dump=str.__str__),
        Scalar(cls=bytes, wire=str, dump=_dump_bytes, load=_load_bytes),
        Scalar(cls=Decimal, wire=str, dump=_dump_decimal, load=_finite_decimal),
        Scalar(cls=datetime, wire=str, dump=_dump_datetime, load=_load_datetime),
        Scalar(cls=date, wire=str, dump=date.isoformat, load=date.fromisoformat),
        Scalar(cls=time, wire=str, dump=_dump_time, load=time.fromisoformat),
        Scalar(
            cls=timedelta,
            wire=int,
            dump=lambda value: value // _MICROSECOND,
            load=lambda raw: timedelta(microseconds=raw),
        ),
        Scalar(cls=UUID, wire=str, dump=str, load=UUID),
    )
}
