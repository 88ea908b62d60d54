"""One codec per scalar: the Python values that its column accepts, and their JSON form.

``parse`` converts one untyped value strictly: nothing is rounded, truncated or guessed; only an
integer may become a float. It returns a value that Arrow stores exactly, or raises ``ValueError``
with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.types import INTEGER_RANGES, SAFE_INTEGER, Scalar
from omnigraph.lang.values.arrow import from_millis, millis
from omnigraph.lang.values.spelling import (
    SubMillisecond,
    blob_text,
    datetime_text,
    decode_blob,
    parse_date,
    parse_datetime,
    show,
)
from omnigraph.records import dataclass

_NONE = type(None)
_EPOCH = datetime(1970, 1, 1)
_DAY_ZERO = date(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_DATE_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_DATETIME_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?Z?$"


@dataclass(frozen=True, slots=True)
class Codec:
    """The representations of one scalar type; for a Vector, of its items."""

    parse: Callable[[Any], Any]
    """Converts one Python value to the value stored in the column."""
    json_types: tuple[type, ...]
    """Types of decoded JSON that ``parse`` may accept."""
    parse_column: Callable[[Sequence[Any]], pa.Array | None] | None = None
    """Converts a whole column that Arrow cannot convert; ``None`` if a value needs ``parse``."""
    native: Callable[[Any], Any] | None = None
    """A Python value in the JSON of results; ``None`` if it is unchanged."""
    sdk: Callable[[Any], Any] | None = None
    """The same for JavaScript clients; ``None`` if it does not differ from ``native``."""
    exported: Callable[[Any], Any] | None = None
    """A Python value in exported records; ``None`` if it is unchanged."""


# -- from Python and JSON -----------------------------------------------------------------------


def _parse_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a String")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the text is not valid Unicode") from None
    return value


def _parse_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is not a Bool")
    return value


def _parse_integer(scalar: Scalar, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        # A larger float may be the rounded form of another integer.
        if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER:
            value = int(value)
        else:
            raise ValueError(f"{show(value)} is not an {scalar}")
    low, high = INTEGER_RANGES[scalar]
    if not low <= value <= high:
        raise ValueError(f"{show(value)} does not fit {scalar}")
    return int(value)


def _parse_float(scalar: Scalar, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{show(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{show(value)} does not fit {scalar}") from None
    if not math.isfinite(number):
        raise ValueError(f"{show(value)} is not a finite number")
    stored = pa.scalar(number, pa.float32()).as_py() if scalar is Scalar.F32 else number
    if not math.isfinite(stored) or (isinstance(value, int) and stored != value):
        raise ValueError(f"{show(value)} does not fit {scalar}")
    return float(stored)


def _parse_date(value: Any) -> date:
    if isinstance(value, datetime):
        raise ValueError(f"{show(value)} is not a Date")
    if isinstance(value, date):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _DAY_ZERO + timedelta(days=value)
        except OverflowError:
            raise ValueError(f"{show(value)} days is outside the range of Date") from None
    if isinstance(value, str):
        try:
            return parse_date(value)
        except ValueError:
            pass
    raise ValueError(f"{show(value)} is not a Date; write 2024-05-01")


def _parse_datetime(value: Any) -> int:
    """Milliseconds since 1970: Arrow would truncate a Python datetime to its day."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return millis(_EPOCH + value * _MILLISECOND)
        except OverflowError:
            raise ValueError(
                f"{show(value)} milliseconds is outside the range of DateTime"
            ) from None
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        try:
            return millis(parse_datetime(value))
        except SubMillisecond:
            raise ValueError(f"{show(value)} is finer than a millisecond") from None
        except ValueError:
            pass
    raise ValueError(f"{show(value)} is not a DateTime; write 2024-05-01T10:00:00Z")


# -- whole columns ------------------------------------------------------------------------------


def _no_column(values: Sequence[Any]) -> None:
    return None


def _date_column(values: Sequence[Any]) -> pa.Array | None:
    match set(map(type, values)) - {_NONE}:
        case types if types == {int}:
            return pa.array(values, pa.int64()).cast(pa.int32()).view(pa.date32())
        case types if types == {str}:
            texts = pa.array(values, pa.string())
            return texts.cast(pa.date32()) if _all_match(texts, _DATE_SHAPE) else None
    return None


def _datetime_column(values: Sequence[Any]) -> pa.Array | None:
    match set(map(type, values)) - {_NONE}:
        case types if types == {int}:
            return from_millis(pa.array(values, pa.int64()))
        case types if types == {str}:
            texts = pa.array(values, pa.string())
            if _all_match(texts, _DATETIME_SHAPE):
                moments = pc.utf8_rtrim(texts, characters="Z").cast(pa.timestamp("ms"))
                return from_millis(moments.cast(pa.int64()))
    return None


def _all_match(texts: pa.Array, shape: str) -> bool:
    """Whether all texts have the usual shape; Arrow then validates the dates."""
    return bool(pc.all(pc.match_substring_regex(texts, shape)).as_py())


# -- to JSON ------------------------------------------------------------------------------------


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _safe_integer(value: int) -> int | str:
    """An integer, as text if a JavaScript number cannot hold it exactly."""
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)


def _json_datetime(value: datetime) -> str:
    return datetime_text(value) + "Z"


def _integer(scalar: Scalar) -> Codec:
    is_wide = scalar in (Scalar.I64, Scalar.U64)
    return Codec(partial(_parse_integer, scalar), (int,), sdk=_safe_integer if is_wide else None)


def _float(scalar: Scalar) -> Codec:
    return Codec(partial(_parse_float, scalar), (float, int), native=_json_number)


CODECS: dict[Scalar, Codec] = {
    Scalar.STRING: Codec(_parse_string, (str,)),
    Scalar.BOOL: Codec(_parse_bool, (bool,)),
    Scalar.I32: _integer(Scalar.I32),
    Scalar.I64: _integer(Scalar.I64),
    Scalar.U32: _integer(Scalar.U32),
    Scalar.U64: _integer(Scalar.U64),
    Scalar.F32: _float(Scalar.F32),
    Scalar.F64: _float(Scalar.F64),
    Scalar.VECTOR: _float(Scalar.F32),
    Scalar.DATE: Codec(_parse_date, (str, int), _date_column, native=date.isoformat),
    Scalar.DATETIME: Codec(
        _parse_datetime, (str, int), _datetime_column, native=_json_datetime, exported=datetime_text
    ),
    Scalar.BLOB: Codec(decode_blob, (str,), _no_column, exported=blob_text),
}
