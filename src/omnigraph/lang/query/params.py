"""Converts parameter values from JSON or Python to the declared types.

Conversion is exact: a value that does not fit raises a ``ParameterError`` that names the parameter,
and so does a missing required parameter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from omnigraph.errors import ParameterError
from omnigraph.lang.closest import closest
from omnigraph.lang.query.typed import DATETIME, NOW_PARAMETER, Atom, Value
from omnigraph.lang.types import F32_MAX, I64_RANGE, INTEGER_RANGES, SAFE_INTEGER, PropType, Scalar
from omnigraph.lang.values.spelling import (
    SubMillisecond,
    as_utc,
    blob_text,
    json_type,
    parse_date,
    parse_datetime,
    python_value,
)

_DECIMAL = re.compile(r"-?[0-9]{1,20}")


class JsonMode(StrEnum):
    """The origin of numbers: exact JSON, or JavaScript floats."""

    STANDARD = "standard"
    JAVASCRIPT = "javascript"


def convert_params(
    declared: Mapping[str, PropType],
    given: Mapping[str, Any] | None,
    *,
    now: datetime | None = None,
    mode: JsonMode = JsonMode.STANDARD,
) -> dict[str, Value]:
    """The values of a query's parameters, including ``now()``.

    Values of undeclared names are converted by their Python type. Nothing uses them, but if a
    parameter is missing, the error mentions an undeclared name that is similar.

    >>> convert_params({"age": PropType(Scalar.I32)}, {"age": "41"})["age"]
    41
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise not_an_object(given)
    values: dict[str, Value] = {}
    for name, type_ in declared.items():
        if name in given:
            values[name] = _declared(name, type_, given[name], mode)
        elif type_.nullable:
            values[name] = None
        else:
            raise _missing(name, type_, [str(key) for key in given if key not in declared])
    for name, value in given.items():
        if name not in declared and name != NOW_PARAMETER:
            values[str(name)] = _inferred(str(name), value)
    moment = given.get(NOW_PARAMETER)
    if moment is not None:
        values[NOW_PARAMETER] = _declared(NOW_PARAMETER, DATETIME, moment, mode)
    else:
        moment = datetime.now(UTC).replace(tzinfo=None) if now is None else as_utc(now)
        values[NOW_PARAMETER] = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return values


def not_an_object(given: object) -> ParameterError:
    """The error of parameters that are not names with values."""
    return ParameterError(f"params must be an object, got {json_type(given)}")


def _missing(name: str, type_: PropType, undeclared: Sequence[str]) -> ParameterError:
    hint = f"pass a value for ${name}: {type_}"
    close = closest(name, undeclared)
    if close is not None:
        hint += f"; '{close}' is not a parameter of this query"
    details = {"parameter": name, "type": str(type_)}
    return ParameterError(f"parameter '{name}' not provided", hint=hint, details=details)


def _refuse(name: str, problem: str, hint: str | None = None) -> ParameterError:
    return ParameterError(f"param '{name}': {problem}", hint=hint, details={"parameter": name})


def _declared(name: str, type_: PropType, value: Any, mode: JsonMode) -> Value:
    value = python_value(value)
    if value is None:
        if type_.nullable:
            return None
        raise _refuse(name, "null is not accepted for non-nullable parameter")
    if type_.is_vector:
        return _vector(name, type_, value)
    convert = _CONVERSIONS[type_.scalar]
    if not type_.is_list:
        return convert(name, type_.scalar, value, mode)
    if not isinstance(value, list | tuple):
        raise _refuse(name, f"expected array for [{type_.scalar}], got {json_type(value)}")
    items: list[Atom] = []
    for position, item in enumerate(map(python_value, value)):
        if item is None:
            raise _refuse(name, f"item {position} of the array is null")
        items.append(convert(f"{name}[{position}]", type_.scalar, item, mode))
    return tuple(items)


def _vector(name: str, type_: PropType, value: Any) -> Value:
    if not isinstance(value, list | tuple):
        raise _refuse(name, f"expected array for {type_}, got {json_type(value)}")
    if len(value) != type_.dimension:
        size = type_.dimension
        raise _refuse(name, f"expected {size} values for Vector({size}), got {len(value)}")
    items: list[float] = []
    for position, item in enumerate(map(python_value, value)):
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise _refuse(name, f"vector element is not numeric (item {position})")
        items.append(_finite(f"{name}[{position}]", Scalar.F32, item))
    return tuple(items)


# -- one value --------------------------------------------------------------------------------


def _string(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    if isinstance(value, str):
        return _unicode(name, value)
    raise _refuse(name, f"expected string, got {json_type(value)}")


def _blob(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    """Bytes and paths as equivalent text."""
    if isinstance(value, str):
        return _unicode(name, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return blob_text(value)
    if isinstance(value, PurePath):
        return Path(value).absolute().as_uri()
    hint = "pass bytes, a path, or text that starts with 'base64:' or 'file://'"
    raise _refuse(name, f"expected blob URI string, got {json_type(value)}", hint)


def _unicode(name: str, text: str) -> str:
    """Raise for half a surrogate pair: JSON can contain one, but no stored text can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refuse(name, "text is not valid Unicode") from None
    return text


def _boolean(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    if isinstance(value, bool):
        return value
    raise _refuse(name, f"expected boolean, got {json_type(value)}")


def _integer(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    number = _whole(name, value, mode)
    low, high = INTEGER_RANGES[scalar]
    if number < low and low == 0:
        raise _refuse(name, f"expected a non-negative integer, got {number}")
    if scalar is Scalar.U64 and number > I64_RANGE[1]:
        limit = I64_RANGE[1]
        raise _refuse(name, f"value {number} exceeds current engine range for U64 (max {limit})")
    if not low <= number <= high:
        raise _refuse(name, f"value {number} exceeds {scalar}")
    return number


def _whole(name: str, value: Any, mode: JsonMode) -> int:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(name, f"expected integer or decimal string, got {json_type(value)}")
    if mode is JsonMode.JAVASCRIPT:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and abs(value) > SAFE_INTEGER:
            raise _refuse(
                name, "integer is beyond the safe range of JavaScript", "pass a decimal string"
            )
    if isinstance(value, float):
        raise _refuse(name, f"expected integer, got {value!r}")
    number = int(value)
    if number.bit_length() > 64:
        raise _refuse(name, "value exceeds 64 bits")
    return number


def _float(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(name, f"expected float, got {json_type(value)}")
    return _finite(name, scalar, value)


def _finite(name: str, scalar: Scalar, value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _refuse(name, f"expected a finite number for {scalar}")
    if scalar is Scalar.F32 and abs(number) > F32_MAX:
        raise _refuse(name, f"value {number!r} exceeds F32")
    return number


def _date(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise _refuse(name, f"expected date string, got {json_type(value)}")
    try:
        return parse_date(value)
    except ValueError:
        raise _refuse(name, f"invalid Date '{value[:40]}'", "write YYYY-MM-DD") from None


def _moment(name: str, scalar: Scalar, value: Any, mode: JsonMode) -> Atom:
    if isinstance(value, datetime):
        try:
            moment = as_utc(value)
        except OverflowError:
            raise _refuse(name, f"DateTime {value} is out of range") from None
        # A pandas timestamp has its nanoseconds in an extra attribute.
        if moment.microsecond % 1000 or getattr(value, "nanosecond", 0):
            raise _too_fine(name, value)
        return moment
    if not isinstance(value, str):
        raise _refuse(name, f"expected datetime string, got {json_type(value)}")
    try:
        return parse_datetime(value)
    except SubMillisecond:
        raise _too_fine(name, value[:40]) from None
    except ValueError:
        hint = "write YYYY-MM-DDTHH:MM:SSZ"
        raise _refuse(name, f"invalid DateTime '{value[:40]}'", hint) from None


def _too_fine(name: str, value: object) -> ParameterError:
    problem = f"DateTime '{value}' is finer than a millisecond"
    return _refuse(name, problem, "leave out what follows the milliseconds")


_CONVERSIONS: dict[Scalar, Callable[[str, Scalar, Any, JsonMode], Atom]] = {
    Scalar.STRING: _string,
    Scalar.BLOB: _blob,
    Scalar.BOOL: _boolean,
    Scalar.I32: _integer,
    Scalar.I64: _integer,
    Scalar.U32: _integer,
    Scalar.U64: _integer,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _moment,
}


def _inferred(name: str, value: Any) -> Value:
    """An undeclared value, by its Python type."""
    value = python_value(value)
    if isinstance(value, list | tuple):
        items = map(python_value, value)
        return tuple(_inferred_atom(f"{name}[{i}]", item) for i, item in enumerate(items))
    return _inferred_atom(name, value)


def _inferred_atom(name: str, value: Any) -> Atom:
    if isinstance(value, str):
        return _unicode(name, value)
    if isinstance(value, datetime):
        return _moment(name, Scalar.DATETIME, value, JsonMode.STANDARD)
    if value is None or isinstance(value, bool | date):
        return value
    if isinstance(value, int):
        low, high = I64_RANGE
        return value if low <= value <= high else _finite(name, Scalar.F64, value)
    if isinstance(value, float):
        return _finite(name, Scalar.F64, value)
    raise _refuse(name, f"cannot take a value of type {json_type(value)}")
