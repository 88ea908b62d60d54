"""Values as text and as plain Python objects.

Does not import Arrow, so that checking or formatting a query loads no library.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.ir_json import compact_json, json_float

BASE64 = "base64:"
FILE_SCHEME = "file://"
_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 512
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FINER = re.compile("[.,][0-9]{3}[0-9]*[1-9]")


# -- dates and date-times -----------------------------------------------------------------------


class SubMillisecond(ValueError):
    """A time between two milliseconds; DateTime stores whole milliseconds."""


def parse_date(text: str) -> date:
    """Parse ``YYYY-MM-DD``; anything else raises ``ValueError``.

    >>> parse_date("2024-02-29")
    datetime.date(2024, 2, 29)
    """
    if _DAY.fullmatch(text) is None:
        raise ValueError(text)
    return date.fromisoformat(text)


def parse_datetime(text: str) -> datetime:
    """Parse an ISO date and time in milliseconds, to UTC without a zone; else ``ValueError``.

    >>> parse_datetime("2024-05-01T12:00:00.1230+02:00")
    datetime.datetime(2024, 5, 1, 10, 0, 0, 123000)
    """
    text = text.strip()
    if _DAY.fullmatch(text[:10]) is None or not text.isascii() or text[10:11] not in ("", "T", " "):
        raise ValueError(text)
    try:
        moment = as_utc(datetime.fromisoformat(text))
    except OverflowError as error:
        raise ValueError(text) from error
    # Python silently drops digits after the sixth.
    if moment.microsecond % 1000 or _FINER.search(text) is not None:
        raise SubMillisecond(text)
    return moment


def as_utc(value: datetime) -> datetime:
    """The same time in UTC, without a zone."""
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def datetime_text(value: datetime) -> str:
    """ISO 8601 with milliseconds and without a zone."""
    return value.isoformat(timespec="milliseconds")


# -- Blobs --------------------------------------------------------------------------------------


def blob_text(value: bytes | bytearray | memoryview) -> str:
    """Binary data as the text that ``decode_blob`` reads."""
    return BASE64 + base64.b64encode(value).decode("ascii")


def decode_blob(value: Any) -> bytes:
    """Bytes, or the bytes of text that starts with ``base64:``; local files are refused.

    >>> decode_blob("base64:aGk=")
    b'hi'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and value.startswith(BASE64):
        try:
            return base64.b64decode(value.removeprefix(BASE64), validate=True)
        except (binascii.Error, ValueError):
            raise ValueConversionError("the text after 'base64:' is not base64") from None
    if names_file(value):
        raise ValueConversionError("a Blob that names a local file is not read")
    raise ValueConversionError(
        "a Blob is bytes, or text that starts with 'base64:' or 'file://'",
        hint="links to other locations are not stored",
    )


def names_file(value: Any) -> bool:
    """Whether a value is a path, or the address of a local file; the scheme ignores case."""
    if isinstance(value, str):
        return value[: len(FILE_SCHEME)].lower() == FILE_SCHEME
    return isinstance(value, Path)


# -- Python objects -----------------------------------------------------------------------------


def python_value(value: Any) -> Any:
    """A NumPy scalar or array as the equivalent Python value; anything else unchanged."""
    if not hasattr(value, "tolist") or isinstance(value, memoryview):
        return value
    if str(getattr(value, "dtype", "")) == "datetime64[ns]":
        # Nanoseconds would become plain integers. ``NaT`` is not equal to itself.
        coarse = value.astype("datetime64[us]")
        is_lossy = ((coarse.astype(value.dtype) != value) & (value == value)).any()
        value = value.astype(str) if is_lossy else coarse
    return value.tolist()


def json_type(value: object) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list | tuple):
        return "array"
    if isinstance(value, Mapping):
        return "object"
    return type(value).__name__


def show(value: Any) -> str:
    """A value quoted in a message: bounded in length, and valid Unicode.

    >>> show("half \\ud800"), show(10**5000)
    ('half \\\\ud800', 'a number of about 5000 digits')
    """
    if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
        # Python refuses to format larger ones.
        return f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    if not isinstance(value, str):
        value = _json_or_repr(value)
    text = value[: _LONGEST_SHOWN + 1].encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(value) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _json_or_repr(value: Any) -> str:
    try:
        if value is None or isinstance(value, bool | list | dict):
            with suppress(TypeError):
                return json.dumps(value, ensure_ascii=False)
        return repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


# -- keys ---------------------------------------------------------------------------------------


KeyValue = str | bool | int | float | date | datetime


def key_id(values: Sequence[KeyValue]) -> str:
    """The hidden ``id`` of a node with these key values, in the order of the key columns.

    A composite key is a JSON array of the spellings, so that different tuples have different ids.
    Graphs with composite keys are not portable to the reference program, which uses one column.

    >>> key_id(["alice"]), key_id(["a,b", 7])
    ('alice', '["a,b","7"]')
    """
    spelled = [key_text(value) for value in values]
    return spelled[0] if len(spelled) == 1 else compact_json(spelled)


def key_text(value: KeyValue) -> str:
    """The canonical spelling of one key value.

    Floats are the shortest text that reads back, with one zero; date-times are in UTC.

    >>> key_text(datetime(2024, 5, 1, 10)), key_text(-0.0), key_text(True)
    ('2024-05-01T10:00:00.000Z', '0.0', 'true')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueConversionError(f"{value} cannot be a key value")
        return json_float(value + 0.0 if value else 0.0)
    if isinstance(value, datetime):
        return datetime_text(as_utc(value)) + "Z"
    if isinstance(value, date):
        return value.isoformat()
    raise ValueConversionError(f"a {type(value).__name__} cannot be a key value")
