"""The hidden ``id`` of a keyed node, made from its key values.

A single key keeps the spelling of its value. A composite key is a JSON array of the spellings,
so that no two different tuples share an id: ``("a,b", "c")`` and ``("a", "b,c")`` stay apart.
Graphs with composite keys are not portable to the reference program, which uses one column.

========== ======================================= =================================
type       spelling                                example
========== ======================================= =================================
String     as it is                                ``alice``
Bool       ``true`` or ``false``                   ``true``
integers   decimal                                 ``-5``
floats     shortest that reads back, one zero      ``0.5``, ``1e16``, ``0.0``
Date       ISO 8601                                ``2024-05-01``
DateTime   ISO 8601, UTC, milliseconds             ``2024-05-01T10:00:00.000Z``
========== ======================================= =================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime

from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.ir_json import compact_json, json_float

KeyValue = str | bool | int | float | date | datetime


def key_id(values: Sequence[KeyValue]) -> str:
    """The id of a row with these key values, in the order of the key columns.

    >>> key_id(["alice"]), key_id(["a,b", 7])
    ('alice', '["a,b","7"]')
    """
    spelled = [key_text(value) for value in values]
    return spelled[0] if len(spelled) == 1 else compact_json(spelled)


def key_text(value: KeyValue) -> str:
    """The canonical spelling of one key value.

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
        moment = value.astimezone(UTC) if value.tzinfo is not None else value
        return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    raise ValueConversionError(f"a {type(value).__name__} cannot be a key value")
