"""Passes records of the load format to the gatherers of their types.

A float loses digits, so ``0.99999999999999999999`` would be accepted as 1. For an integer property
the text of a number with a point or an exponent is therefore parsed again, exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from omnigraph.commit.receipts import BESIDE_DATA
from omnigraph.lang.schema.catalog import EdgeType, EntityType
from omnigraph.lang.values.spelling import show
from omnigraph.storage.tables.store import KEY
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.intake import Intake

_EMPTY: dict[str, Any] = {}
_NODE = frozenset({"type", "data", KEY})
_EDGE = frozenset({"edge", "from", "to", "data", KEY})


def exact_float(text: str) -> float | str:
    """The float that a text spells, or the text itself if rounding made it an integer.

    >>> exact_float("5.0"), exact_float("0.99999999999999999999")
    (5.0, '0.99999999999999999999')
    """
    number = float(text)
    if not number.is_integer():
        return number
    try:
        return number if Decimal(text) == number else text
    except ArithmeticError:
        # The exponent is beyond those of decimals.
        return text


def _has_float(data: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Whether one of some integer properties has a float, also in a list."""
    for name in names:
        value = data.get(name)
        if type(value) is float or (type(value) is list and float in map(type, value)):
            return True
    return False


_EXACT = json.JSONDecoder(parse_float=exact_float)


def take_records(records: Iterable[Any], intake: Intake, name: str) -> None:
    """Read records given as Python values; they are numbered from 1."""
    Records(intake, intake.open_file(name)).take_all(records, 1)


class Records:
    """The records of one file, one after the other."""

    def __init__(self, intake: Intake, file: int) -> None:
        self.text_of: Callable[[int], str] | None = None
        """The text of the record on a line, if there is one."""
        self._intake = intake
        self._file = file
        self.count = 0
        """The number of records so far, including unreadable ones."""
        self._nodes: dict[str, Gatherer] = {}
        self._edges: dict[str, Gatherer] = {}

    def take_all(self, values: Iterable[Any], first: int) -> None:
        """Records on consecutive lines."""
        for line, value in enumerate(values, first):
            self.take(value, line)

    def take(self, value: Any, line: int) -> None:
        """One record: ``{"type": …, "data": …}`` or ``{"edge": …, "from": …, "to": …}``.

        The id is in ``data`` or beside it; if beside, an ``id`` in ``data`` is like any property.
        """
        self.count += 1
        if not isinstance(value, dict):
            self._refuse(line, "a record is a JSON object")
            return
        data = value.get("data", _EMPTY)
        if not isinstance(data, dict):
            self._refuse(line, "'data' is not an object", "data", data)
            return
        field = "edge" if value.get("type") is None else "type"
        name = value.get(field)
        if name is None:
            self._refuse(line, "expected 'type' or 'edge' field")
            return
        gatherers = self._nodes if field == "type" else self._edges
        gatherer = gatherers.get(name) if type(name) is str else None
        gatherer = gatherer or self._find(name, field, line)
        if gatherer is None:
            return
        ends = None
        if field == "edge":
            ends = (value.get("from"), value.get("to"))
            if ends[0] is None or ends[1] is None:
                missing = "from" if ends[0] is None else "to"
                self._refuse(line, f"edge missing '{missing}'", missing)
                return
        # A usual record has no other keys: counting them is the cheapest check.
        usual = (1 if ends is None else 3) + (data is not _EMPTY)
        if len(value) > usual and not self._is_fine(value, gatherer, line):
            return
        if KEY in value and (data := self._with_id(value[KEY], data, gatherer, line)) is None:
            return
        if self.text_of is not None and _has_float(data, gatherer.integers):
            exact = _EXACT.decode(self.text_of(line))["data"]
            data |= {name: exact[name] for name in gatherer.integers if name in data}
        gatherer.add(data, ends, self._file, line)

    def _is_fine(self, value: dict[Any, Any], gatherer: Gatherer, line: int) -> bool:
        """Count names beside ``data``, which are ignored, or refuse the record."""
        if value.get("type") is not None and value.get("edge") is not None:
            self._refuse(line, "'type' and 'edge' exclude each other", "edge", value["edge"])
            return False
        # An id beside ``data`` is always a text; no other value means that there is none.
        if KEY in value and type(value[KEY]) is not str:
            self._refuse(line, f"'{KEY}' beside 'data' is not a text", KEY, show(value[KEY]))
            return False
        allowed = _EDGE if isinstance(gatherer.entity_type, EdgeType) else _NODE
        names = sorted(show(name) for name in value.keys() - allowed)
        if names and self._intake.strict_properties:
            reason = f"unknown field '{names[0]}' beside 'data'; move it into 'data'"
            self._refuse(line, reason, names[0])
            return False
        for name in names:
            self._intake.ignore(gatherer.entity_type, f"{name}{BESIDE_DATA}", 1)
        return True

    def _with_id(
        self, given: str, data: dict[str, Any], gatherer: Gatherer, line: int
    ) -> dict[str, Any] | None:
        """The data of a record whose id is beside it; none if the record is refused.

        No type has a property ``id``, so one in the data is unknown.
        """
        if KEY in data and not gatherer.is_fine([KEY], self._file, line):
            return None
        return {**data, KEY: given}

    def _find(self, name: Any, field: str, line: int) -> Gatherer | None:
        """The gatherer of a type that occurs for the first time."""
        catalog, is_node = self._intake.catalog, field == "type"
        gatherers = self._nodes if is_node else self._edges
        types: Mapping[str, EntityType] = catalog.node_types if is_node else catalog.edge_types
        entity_type = types.get(name) if isinstance(name, str) else None
        if entity_type is None:
            what = "node" if is_node else "edge"
            self._refuse(line, f"unknown {what} type '{show(name)}'", field, name)
            return None
        gatherers[name] = self._intake.gatherer(entity_type)
        return gatherers[name]

    def _refuse(self, line: int, reason: str, field: str | None = None, value: Any = None) -> None:
        shown = None if value is None else show(value)
        counted = ("record", self.count)
        self._intake.reject(self._file, line, reason, field=field, value=shown, counted=counted)
