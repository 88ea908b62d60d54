"""Numbers with a point or an exponent that stand where integers are wanted.

A float forgets digits, so ``0.99999999999999999999`` would pass for 1. Only where such a number
meets an integer property is its text looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from omnigraph.lang.types import PropType


def exact_float(text: str) -> float | str:
    """The float that a text spells, or the text itself where the float is another integer.

    >>> exact_float("5.0"), exact_float("0.99999999999999999999")
    (5.0, '0.99999999999999999999')
    """
    number = float(text)
    if not number.is_integer():
        return number
    try:
        return number if Decimal(text) == number else text
    except ArithmeticError:
        # An exponent that even decimals do not have.
        return text


def integers_of(properties: dict[str, PropType]) -> tuple[str, ...]:
    """The names of the properties that take integers, or lists of them."""
    return tuple(name for name, type_ in properties.items() if type_.scalar.is_integer)


def has_float(data: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Whether some property that wants integers has a float, also in a list."""
    for name in names:
        value = data.get(name)
        if type(value) is float or (type(value) is list and float in map(type, value)):
            return True
    return False


def judged(
    data: dict[str, Any], names: tuple[str, ...], record: Callable[[], str]
) -> dict[str, Any]:
    """The same data with the texts of numbers that are no integers, where one was wanted."""
    exact = _EXACT.decode(record())["data"]
    return {name: exact[name] if name in names else value for name, value in data.items()}


_EXACT = json.JSONDecoder(parse_float=exact_float)
