"""JSON texts exactly as the reference program writes them.

Python's own encoder formats floats differently (``1e+16``), so numbers are formatted here. Strings
and structure follow the standard; characters outside ASCII are not escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from omnigraph.errors import InputError


def json_float(value: float) -> str:
    """The shortest decimal that reads back as the same number.

    >>> [json_float(x) for x in (10.0, 0.5, 1e15, 1e16, 0.00001, 0.000001, 1.5e300)]
    ['10.0', '0.5', '1000000000000000.0', '1e16', '0.00001', '1e-6', '1.5e300']
    """
    return _float(value, 1e-5)


def debug_float(value: float) -> str:
    """The text of a float inside the sort key of a ``@range`` constraint.

    >>> debug_float(0.00001), debug_float(0.5)
    ('1e-5', '0.5')
    """
    return _float(value, 1e-4)


def _float(value: float, smallest: float) -> str:
    if value == 0 or smallest <= abs(value) < 1e16:
        return plain_float(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{exponent + len(text) - 1}"


def plain_float(value: float) -> str:
    """The number without an exponent, always with a decimal point.

    >>> plain_float(1e22), plain_float(2.5)
    ('10000000000000000000000.0', '2.5')
    """
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def compact_json(value: Any) -> str:
    """One line, no spaces.

    >>> compact_json({"a": [1, 0.5, None], "b": "é"})
    '{"a":[1,0.5,null],"b":"é"}'
    """
    if isinstance(value, dict):
        body = ",".join(f"{_string(k)}:{compact_json(v)}" for k, v in value.items())
        return "{" + body + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact_json, value)) + "]"
    return _scalar(value)


def pretty_json(value: Any) -> str:
    """Two spaces per level; an empty list or object stays on its line.

    >>> print(pretty_json({"a": [], "b": [1]}))
    {
      "a": [],
      "b": [
        1
      ]
    }
    """
    return "".join(_pretty(value, ""))


def _pretty(value: Any, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        separator = "{\n"
        for key, item in value.items():
            yield f"{separator}{inner}{_string(key)}: "
            yield from _pretty(item, inner)
            separator = ",\n"
        yield f"\n{indent}}}"
    elif isinstance(value, list) and value:
        separator = "[\n"
        for item in value:
            yield f"{separator}{inner}"
            yield from _pretty(item, inner)
            separator = ",\n"
        yield f"\n{indent}]"
    elif isinstance(value, dict | list):
        yield "{}" if isinstance(value, dict) else "[]"
    else:
        yield _scalar(value)


def parse_json(text: str) -> Any:
    """Parse a JSON text; raises ``InputError`` if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}") from None


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return json_float(value)
    return _string(value)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
