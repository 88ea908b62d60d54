"""Records as the load format has them, to the gatherers of their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.write.convert import show
from omnigraph.write.delta import Kind
from omnigraph.write.load.gather import Gatherer
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import Reject

_EMPTY: dict[str, Any] = {}


def take_records(records: Iterable[Any], intake: Intake, name: str) -> None:
    """Take records in that are Python values already; they count from 1."""
    Records(intake, intake.open_file(name)).take_all(records, 1)


class Records:
    """The records of one file, one after the other."""

    def __init__(self, intake: Intake, file: int) -> None:
        self._intake = intake
        self._file = file
        self._count = 0
        self._nodes: dict[str, Gatherer] = {}
        self._edges: dict[str, Gatherer] = {}

    def take_all(self, values: Iterable[Any], first: int) -> None:
        """Records of which each stands on the line after the one before."""
        for line, value in enumerate(values, first):
            self.take(value, line)

    def count_one(self) -> int:
        """Count a record that could not be read; gives its number."""
        self._count += 1
        return self._count

    def refuse_all(self, line: int, reason: str) -> None:
        """End the load, however many records may be set aside."""
        raise Reject(self._intake.files[self._file], line, reason).error()

    def take(self, value: Any, line: int) -> None:
        """One record: ``{"type": …, "data": …}`` or ``{"edge": …, "from": …, "to": …}``."""
        self._count += 1
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
            if gatherer is not None:
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
        gatherer.add(data, ends, self._file, line)

    def _find(self, name: Any, field: str, line: int) -> Gatherer | None:
        """The gatherer of a type that is seen for the first time here."""
        catalog, is_node = self._intake.catalog, field == "type"
        known = self._nodes if is_node else self._edges
        kinds: Mapping[str, Kind] = catalog.node_types if is_node else catalog.edge_types
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            what = "node" if is_node else "edge"
            self._refuse(line, f"unknown {what} type '{show(name)}'", field, name)
            return None
        known[name] = self._intake.gatherer(kind)
        return known[name]

    def _refuse(self, line: int, reason: str, field: str | None = None, value: Any = None) -> None:
        shown = None if value is None else show(value)
        text = f"record {self._count}: {reason}"
        self._intake.reject(self._file, line, text, field=field, value=shown)
