"""Records as the load format has them, to the gatherers of their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from omnigraph.commit.receipts import BESIDE_DATA
from omnigraph.lang.values.spelling import show
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Kind
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.numbers import has_float, judged

_EMPTY: dict[str, Any] = {}
_NODE = frozenset({"type", "data", KEY})
_EDGE = frozenset({"edge", "from", "to", "data", KEY})


def take_records(records: Iterable[Any], intake: Intake, name: str) -> None:
    """Take records in that are Python values already; they count from 1."""
    Records(intake, intake.open_file(name)).take_all(records, 1)


class Records:
    """The records of one file, one after the other."""

    def __init__(self, intake: Intake, file: int) -> None:
        self.text_of: Callable[[int], str] | None = None
        """The text of the record that stands on a line, where there is one."""
        self._intake = intake
        self._file = file
        self.count = 0
        """How many there were so far, also those that could not be read."""
        self._nodes: dict[str, Gatherer] = {}
        self._edges: dict[str, Gatherer] = {}

    def take_all(self, values: Iterable[Any], first: int) -> None:
        """Records of which each stands on the line after the one before."""
        for line, value in enumerate(values, first):
            self.take(value, line)

    def take(self, value: Any, line: int) -> None:
        """One record: ``{"type": …, "data": …}`` or ``{"edge": …, "from": …, "to": …}``.

        The id stands in ``data`` or beside it; there an ``id`` in ``data`` is any property.
        """
        self.count += 1
        if not isinstance(value, dict):
            self._refuse(line, "a record is a JSON object")
            return
        data = value.get("data", _EMPTY)
        if not isinstance(data, dict):
            self._refuse(line, "'data' is not an object", "data", data)
            return
        name = value.get("type")
        if name is not None:
            gatherer = self._nodes.get(name) if type(name) is str else None
            gatherer = gatherer or self._find(name, "type", line)
            # The usual record has nothing else: counting its keys is the cheapest way to see that.
            has_more = len(value) > 1 + (data is not _EMPTY)
            if gatherer is None or (has_more and not self._is_fine(value, _NODE, gatherer, line)):
                return
            if KEY in value and (data := self._with_id(value[KEY], data, gatherer, line)) is None:
                return
            if self.text_of is not None and has_float(data, gatherer.integers):
                data = self._judged(data, gatherer, line)
            gatherer.add(data, None, self._file, line)
            return
        name = value.get("edge")
        if name is None:
            self._refuse(line, "expected 'type' or 'edge' field")
            return
        gatherer = self._edges.get(name) if type(name) is str else None
        gatherer = gatherer or self._find(name, "edge", line)
        if gatherer is None:
            return
        ends = (value.get("from"), value.get("to"))
        if ends[0] is None or ends[1] is None:
            missing = "from" if ends[0] is None else "to"
            self._refuse(line, f"edge missing '{missing}'", missing)
            return
        has_more = len(value) > 3 + (data is not _EMPTY)
        if has_more and not self._is_fine(value, _EDGE, gatherer, line):
            return
        if KEY in value and (data := self._with_id(value[KEY], data, gatherer, line)) is None:
            return
        if self.text_of is not None and has_float(data, gatherer.integers):
            data = self._judged(data, gatherer, line)
        gatherer.add(data, ends, self._file, line)

    def _judged(self, data: dict[str, Any], gatherer: Gatherer, line: int) -> dict[str, Any]:
        text_of = self.text_of
        return data if text_of is None else judged(data, gatherer.integers, lambda: text_of(line))

    def _is_fine(
        self, value: dict[Any, Any], allowed: frozenset[str], gatherer: Gatherer, line: int
    ) -> bool:
        """What stands beside ``data`` is not read: it is counted, or refused."""
        if value.get("type") is not None and value.get("edge") is not None:
            self._refuse(line, "'type' and 'edge' exclude each other", "edge", value["edge"])
            return False
        if KEY in value and not self._is_fine_id(value[KEY], line):
            return False
        names = sorted(show(name) for name in value.keys() - allowed)
        if names and self._intake.strict_properties:
            reason = f"'{names[0]}' stands beside 'data' and is not read; put it into 'data'"
            self._refuse(line, reason, names[0])
            return False
        for name in names:
            self._intake.ignore(gatherer.kind, f"{name}{BESIDE_DATA}", 1)
        return True

    def _is_fine_id(self, given: Any, line: int) -> bool:
        """An id beside ``data`` is always a text; no other value means that there is none."""
        if type(given) is str:
            return True
        self._refuse(line, f"'{KEY}' beside 'data' is not a text", KEY, show(given))
        return False

    def _with_id(
        self, given: str, data: dict[str, Any], gatherer: Gatherer, line: int
    ) -> dict[str, Any] | None:
        """The data of a record whose id stands beside it; none when it is refused.

        No type has a property of that name, so an ``id`` in the data is one that nobody knows.
        """
        if KEY in data and not gatherer.is_fine([KEY], self._file, line):
            return None
        return {**data, KEY: given}

    def _find(self, name: Any, field: str, line: int) -> Gatherer | None:
        """The gatherer of a type that is seen for the first time here."""
        catalog, is_node = self._intake.catalog, field == "type"
        gatherers = self._nodes if is_node else self._edges
        kinds: Mapping[str, Kind] = catalog.node_types if is_node else catalog.edge_types
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            what = "node" if is_node else "edge"
            self._refuse(line, f"unknown {what} type '{show(name)}'", field, name)
            return None
        gatherers[name] = self._intake.gatherer(kind)
        return gatherers[name]

    def _refuse(self, line: int, reason: str, field: str | None = None, value: Any = None) -> None:
        shown = None if value is None else show(value)
        counted = ("record", self.count)
        self._intake.reject(self._file, line, reason, field=field, value=shown, counted=counted)
