"""Model classes that bring their own JSON form: pydantic models and msgspec structs.

Neither library is imported before a class of it is met: `import nebis` loads no third-party module.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nebis.core.codec_shape import NOTHING, Misfit, not_a, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A pydantic model or msgspec struct, which writes and reads its own JSON.

    Its serialisers belong to the user and may lose something (a secret shown as stars, an excluded field), so every
    value is read back before it is stored: what cannot be replayed is refused while the refusal can still be told.
    """

    cls: type
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    verbatim: frozenset[type] = NOTHING

    @property
    def name(self) -> str:
        return type_name(self.cls)

    @property
    def types(self) -> frozenset[type]:
        return frozenset({self.cls})

    @property
    def is_hashable(self) -> bool:
        return self.cls.__hash__ is not None

    def plain(self, value: Any) -> Any:
        return json.loads(self.encode(value), parse_float=_finite, parse_constant=_finite)

    def restore(self, raw: Any) -> Any:
        return self.decode(json.dumps(raw, allow_nan=False).encode())

    def encode(self, value: Any) -> bytes:
        if type(value) is not self.cls:
            raise not_a(self.name, value)
        try:
            data = self.dump(value)
            is_kept = bool(self.load(data) == value)
        except Exception as error:  # noqa: BLE001 - Serialisers and validators are the user's and may raise anything.
            raise Misfit(f"{self.name} cannot be written as JSON and read back ({type(error).__name__})") from None
        if not is_kept:
            raise Misfit(f"{self.name} does not come back equal from its own JSON form; a field is lost or changed")
        return data

    def decode(self, data: bytes) -> Any:
        try:
            return self.load(data)
        except Exception as error:  # noqa: BLE001 - Validators are the user's and may raise anything.
            raise Misfit(f"not a stored {self.name} ({type(error).__name__})") from None


def _finite(spelled: str) -> float:
    """Read a number of a model, which may write NaN and infinity; inside of a value of ours they have no form."""
    number = float(spelled)
    if not math.isfinite(number):
        raise Misfit("NaN and infinity have no JSON form")
    return number


class ModelRefused(Exception):
    """A model class that cannot be stored; the text says what to do."""


def model_for(cls: type) -> Model | None:
    """Return the shape of a model class, None for any other class, or raise `ModelRefused`."""
    if _is_subclass(cls, "pydantic", "BaseModel"):
        return _pydantic_model(cls)
    if _is_subclass(cls, "msgspec", "Struct"):
        return _msgspec_model(cls)
    return None


def _is_subclass(cls: type, module_name: str, base_name: str) -> bool:
    # Whoever defined such a class has imported its library already.
    base = getattr(sys.modules.get(module_name), base_name, None)
    return base is not None and issubclass(cls, base)


def _pydantic_model(cls: type) -> Model:
    from pydantic import TypeAdapter  # noqa: PLC0415 - Optional, and loaded already when such a class exists.

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cls)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A default without a JSON schema is no obstacle to storing a value.
            adapter.json_schema()
    except Exception as error:
        raise ModelRefused(
            f"pydantic cannot describe it as JSON ({type(error).__name__}); "
            "complete its forward references and give every field a type with a JSON schema"
        ) from error
    return Model(
        cls=cls,
        # Field names on both sides: validation and serialisation aliases need not agree.
        dump=lambda value: adapter.dump_json(value, by_alias=False, round_trip=True, warnings="error"),
        load=lambda data: adapter.validate_json(data, by_alias=False, by_name=True),
    )


def _msgspec_model(cls: type) -> Model:
    import msgspec  # noqa: PLC0415 - Optional, and loaded already when such a class exists.

    try:
        msgspec.json.schema(cls)
    except Exception as error:
        raise ModelRefused(
            f"msgspec cannot describe it as JSON ({type(error).__name__}); give every field a type that it supports"
        ) from error
    if not cls.__struct_config__.eq:  # type: ignore[attr-defined]  # Every Struct subclass has it.
        raise ModelRefused("without eq=True nobody can tell whether a replay is equal; declare the struct with it")
    return Model(cls=cls, dump=msgspec.json.encode, load=partial(msgspec.json.decode, type=cls))
