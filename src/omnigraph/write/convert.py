"""Values of JSON and other loose sources into exact Arrow columns.

A column is converted in one step when every value has an expected Python type; only a column in
which something is wrong is looked at value by value, to say what. Nothing is rounded, cut or
guessed: an integer may become a float, and that is all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.lang.query.checker.literals import TooFine, parse_date, parse_datetime
from omnigraph.lang.query.params import python_value
from omnigraph.lang.schema.arrow import arrow_type
from omnigraph.lang.types import INTEGER_RANGES, PropType, Scalar
from omnigraph.write.blobs import LocalFiles, blob_bytes
from omnigraph.write.moments import from_millis

_NONE = type(None)
_EPOCH = datetime(1970, 1, 1)
_DAY_ZERO = date(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 512
_EXACT_FLOAT = 2**53 - 1


class Problem(NamedTuple):
    """A value that does not fit: which row, and what is wrong with it."""

    row: int
    field: str
    value: str
    message: str
    hint: str | None = None


def convert_column(
    name: str,
    type_: PropType,
    values: Sequence[Any],
    *,
    is_typed: bool = False,
    files: LocalFiles = LocalFiles.NEVER,
) -> tuple[pa.Array, list[Problem]]:
    """A column of exactly its type, with null where a value does not fit.

    ``is_typed`` says that a strict decoder gave the values, so that none needs a look for its
    Python type; ``files`` what becomes of Blobs that name local files.

    >>> convert_column("age", PropType(Scalar.I32), [1, None, 2.5])[1][0].message
    '2.5 is not an I32'
    """
    target = arrow_type(type_)
    fast = _whole_column(type_, values, target, is_typed)
    if fast is not None:
        return fast, []
    convert = _item_converter(type_, files)
    problems: list[Problem] = []
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            plain = python_value(value)
            converted.append(None if plain is None else convert(plain))
        except (ValueError, ValueConversionError) as error:
            converted.append(None)
            said, hint = str(error), None
            if isinstance(error, ValueConversionError):
                said, hint = error.message, error.hint
            problems.append(Problem(row, name, show(value), said, hint))
    return _to_arrow(converted, type_, target), problems


def show(value: Any) -> str:
    """A value as a message quotes it: not too long, and fit to be written anywhere.

    >>> show("half \\ud800"), show(10**5000)
    ('half \\\\ud800', 'a number of about 5000 digits')
    """
    if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
        # Python refuses to spell greater ones.
        return f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    if not isinstance(value, str):
        value = _spelled_out(value)
    text = value[: _LONGEST_SHOWN + 1].encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(value) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _spelled_out(value: Any) -> str:
    """As JSON where a record may have brought it so, else as Python writes it."""
    try:
        if value is None or isinstance(value, bool | list | dict):
            with suppress(TypeError):
                return json.dumps(value, ensure_ascii=False)
        return repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


# -- a whole column at once ---------------------------------------------------------------------


def _whole_column(
    type_: PropType, values: Sequence[Any], target: pa.DataType, is_typed: bool
) -> pa.Array | None:
    """The column in one step, or none when some value needs a closer look."""
    expected = _EXPECTED.get(type_.scalar)
    if expected is None:
        return None if type_.is_list else _whole_days(type_.scalar, values)
    if not is_typed and not _has_types(type_, values, expected):
        return None
    try:
        column = pa.array(values, target)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    return column if flaw(type_, column) is None else None


def _has_types(type_: PropType, values: Sequence[Any], expected: set[type]) -> bool:
    """Whether all values, or all items of lists, are of Python types that Arrow takes exactly."""
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        if not set(map(type, values)) <= {list, _NONE}:
            return False
        values = list(chain.from_iterable(value for value in values if value is not None))
        expected = expected - {_NONE}
    return set(map(type, values)) <= expected


def _whole_days(scalar: Scalar, values: Sequence[Any]) -> pa.Array | None:
    """Dates and moments in their plain spellings, all texts or all numbers."""
    if scalar not in (Scalar.DATE, Scalar.DATETIME):
        return None
    kinds = set(map(type, values)) - {_NONE}
    try:
        if kinds == {int}:
            column = pa.array(values, pa.int64())
            column = column.view(pa.date64()) if scalar is Scalar.DATETIME else _days(column)
        elif kinds == {str}:
            column = _spelled(scalar, pa.array(values, pa.string()))
        else:
            return None
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    is_fine = column is not None and flaw(PropType(scalar), column) is None
    return column if is_fine else None


def _days(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.int32()).view(pa.date32())


def _spelled(scalar: Scalar, texts: pa.Array) -> pa.Array | None:
    """Texts that all have the usual shape; Arrow says whether there is such a day."""
    shape = _DATE_SHAPE if scalar is Scalar.DATE else _DATETIME_SHAPE
    if not pc.all(pc.match_substring_regex(texts, shape)).as_py():
        return None
    if scalar is Scalar.DATE:
        return texts.cast(pa.date32())
    moments = pc.utf8_rtrim(texts, characters="Z").cast(pa.timestamp("ms"))
    return from_millis(moments.cast(pa.int64()))


_DATE_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_DATETIME_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?Z?$"


def flaw(type_: PropType, column: pa.Array) -> str | None:
    """What is wrong with a column although Arrow can hold it; none when it is fine.

    >>> flaw(PropType(Scalar.F64), pa.array([1.5, float("inf")]))
    'holds a number that is not finite'
    """
    flat = column
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        flat = column.flatten()
        if flat.null_count:
            return "holds a list with a null in it"
    if type_.scalar in _DAYS:
        return None if _is_in_calendar(type_.scalar, flat) else f"holds no {type_.scalar}"
    if not type_.scalar.is_float and type_.scalar is not Scalar.VECTOR:
        return None
    if pc.all(pc.is_finite(flat)).as_py() is False:
        return "holds a number that is not finite"
    if type_.scalar is not Scalar.VECTOR or not len(flat):
        return None
    zero = flat.to_numpy(zero_copy_only=False).reshape(-1, type_.dimension or 1) == 0
    return "holds a vector of zeros" if zero.all(axis=1).any() else None


def _is_in_calendar(scalar: Scalar, column: pa.Array) -> bool:
    """Whether all days are in years of four digits, which is what can be shown."""
    per_day = _DAYS[scalar]
    ends = pc.min_max(column.view(pa.int32() if scalar is Scalar.DATE else pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1
    return low is None or (first <= low and high <= last)


_FIRST_DAY = (date.min - _DAY_ZERO).days
_LAST_DAY = (date.max - _DAY_ZERO).days
_DAYS = {Scalar.DATE: 1, Scalar.DATETIME: 86_400_000}

_EXPECTED: dict[Scalar, set[type]] = {
    Scalar.STRING: {str, _NONE},
    Scalar.BOOL: {bool, _NONE},
    Scalar.I32: {int, _NONE},
    Scalar.I64: {int, _NONE},
    Scalar.U32: {int, _NONE},
    Scalar.U64: {int, _NONE},
    Scalar.F32: {float, int, _NONE},
    Scalar.F64: {float, int, _NONE},
    Scalar.VECTOR: {float, int},
}


# -- value by value -----------------------------------------------------------------------------


def _item_converter(type_: PropType, files: LocalFiles) -> Callable[[Any], Any]:
    if type_.scalar is Scalar.BLOB:
        return lambda value: blob_bytes(value, files)
    if type_.scalar is Scalar.VECTOR:
        return lambda value: _vector(type_, value)
    convert = _ITEMS[type_.scalar]
    if not type_.is_list:
        return lambda value: convert(type_.scalar, value)
    return lambda value: _list(type_, convert, value)


def _list(type_: PropType, convert: Callable[[Scalar, Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{show(value)} is not a list")
    items = []
    for position, item in enumerate(value):
        plain = python_value(item)
        if plain is None:
            raise ValueError(f"item {position} is null")
        try:
            items.append(convert(type_.scalar, plain))
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
    return items


def _vector(type_: PropType, value: Any) -> list[float]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{show(value)} is not a vector")
    if len(value) != type_.dimension:
        raise ValueError(f"{len(value)} numbers instead of {type_.dimension}")
    items = []
    for position, item in enumerate(value):
        try:
            items.append(_float(Scalar.F32, python_value(item)))
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
    if not any(items):
        raise ValueError("a vector of zeros has no direction")
    return items


def _text(scalar: Scalar, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a String")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the text is not valid Unicode") from None
    return value


def _bool(scalar: Scalar, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is not a Bool")
    return value


def _int(scalar: Scalar, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        # A greater float may stand for a neighbour of the number that was written.
        if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOAT:
            value = int(value)
        else:
            raise ValueError(f"{show(value)} is not an {scalar}")
    low, high = INTEGER_RANGES[scalar]
    if not low <= value <= high:
        raise ValueError(f"{show(value)} does not fit {scalar}")
    return int(value)


def _float(scalar: Scalar, value: Any) -> float:
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


def _date(scalar: Scalar, value: Any) -> date:
    if isinstance(value, datetime):
        raise ValueError(f"{show(value)} is not a Date")
    if isinstance(value, date):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _DAY_ZERO + timedelta(days=value)
        except OverflowError:
            raise ValueError(f"{show(value)} days are no Date") from None
    if isinstance(value, str):
        try:
            return parse_date(value)
        except ValueError:
            pass
    raise ValueError(f"{show(value)} is not a Date; write 2024-05-01")


def _datetime(scalar: Scalar, value: Any) -> int:
    """Milliseconds since 1970: Arrow would cut the time of day off a Python moment."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            moment = _EPOCH + value * _MILLISECOND
        except OverflowError:
            raise ValueError(f"{show(value)} milliseconds are no DateTime") from None
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        try:
            return (parse_datetime(value) - _EPOCH) // _MILLISECOND
        except TooFine:
            raise ValueError(f"{show(value)} is finer than a millisecond") from None
        except ValueError:
            pass
    raise ValueError(f"{show(value)} is not a DateTime; write 2024-05-01T10:00:00Z")


_ITEMS: dict[Scalar, Callable[[Scalar, Any], Any]] = {
    Scalar.STRING: _text,
    Scalar.BOOL: _bool,
    Scalar.I32: _int,
    Scalar.I64: _int,
    Scalar.U32: _int,
    Scalar.U64: _int,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
}


def _to_arrow(values: list[Any], type_: PropType, target: pa.DataType) -> pa.Array:
    if type_.scalar is not Scalar.DATETIME:
        return pa.array(values, target)
    numbers = pa.list_(pa.int64()) if type_.is_list else pa.int64()
    return from_millis(pa.array(values, numbers)).cast(target)
