"""Statistics of a table for the planner, measured when its adjacencies and columns are made.

Degrees are counted from the arrays of an index, distinct values estimated from samples of columns.
What was measured holds for other versions of the table until its size has changed by an eighth. It
is not kept by fragment: the degrees of a node add up over all fragments, so neither their moments
nor the number of nodes with edges are sums of those of fragments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.plan.statistics import ColumnFacts, Degrees, TableFacts, rounded

_SAMPLE = 4_096
_MOST_CHANGE = 1 / 8
_DEGREES = ""

Counts = npt.NDArray[np.int64]


class Measures:
    """What was measured of one table. Safe to share between threads: facts are replaced."""

    __slots__ = ("_rows", "facts", "is_stored")

    def __init__(self) -> None:
        self.facts = TableFacts({})
        self._rows: dict[str, int] = {}
        self.is_stored = True
        """Whether a derived file has these facts."""

    @property
    def rows(self) -> int:
        """The number of rows that were measured."""
        return max(self._rows.values(), default=0)

    def to_json(self) -> dict[str, Any]:
        return {"facts": asdict(self.facts), "rows": self._rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measures:
        measures = cls()
        columns = {name: ColumnFacts(**item) for name, item in data["facts"]["columns"].items()}
        degrees = data["facts"]["degrees"]
        if degrees is not None:
            degrees = Degrees(**{name: _restored(value) for name, value in degrees.items()})
        measures.facts, measures._rows = TableFacts(columns, degrees), dict(data["rows"])
        return measures

    def _holds(self, name: str, rows: int) -> bool:
        measured = self._rows.get(name)
        return measured is not None and abs(rows - measured) <= _MOST_CHANGE * measured

    def note_column(self, name: str, column: pa.Array) -> None:
        """Measure a column that was read."""
        if self._holds(name, len(column)) or not len(column) or pa.types.is_nested(column.type):
            return
        self._rows[name] = len(column)
        facts = column_facts(column)
        if self.facts.columns.get(name) != facts:
            self.facts = replace(self.facts, columns={**self.facts.columns, name: facts})
            self.is_stored = False

    def note_degrees(self, out: Counts, into: Counts, nodes: tuple[int, int], same: bool) -> None:
        """Measure the degrees of an edge table.

        ``out`` and ``into`` are the numbers of edges of each source and target, ``nodes`` how many
        there may be; ``same`` is whether both are numbers of one type.
        """
        rows = int(out.sum())
        if self._holds(_DEGREES, rows):
            return
        self._rows[_DEGREES] = rows
        degrees = measured_degrees(out, into, nodes, same=same)
        if self.facts.degrees != degrees:
            self.facts = replace(self.facts, degrees=degrees)
            self.is_stored = False


def _restored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def column_facts(column: pa.Array) -> ColumnFacts:
    """The facts of a column; distinct values are estimated from evenly spaced rows.

    Values that are rare in the sample stand for more of their kind than frequent ones.
    """
    count = len(column)
    sample = column
    if count > _SAMPLE:
        sample = column.take(arrow_view(np.linspace(0, count - 1, _SAMPLE).astype(np.int64)))
    counts = numpy_view(pc.value_counts(sample.drop_null()).field("counts"))
    once = int((counts == 1).sum())
    distinct = len(counts) - once + once * math.sqrt(count / len(sample))
    return ColumnFacts(rounded(distinct), round(column.null_count / count, 1))


def measured_degrees(out: Counts, into: Counts, nodes: tuple[int, int], *, same: bool) -> Degrees:
    """The moments of the degrees of sources and targets."""
    rows = max(int(out.sum()), 1)
    squares = [_mean_of_squares(degrees, rows) for degrees in (out, into)]
    both = min(len(out), len(into))
    through = float(out[:both].astype(np.float64) @ into[:both]) / rows
    sizes = [max(size, 1) for size in nodes]
    return Degrees(
        (rounded(rows / sizes[0]), rounded(rows / sizes[1])),
        (_fraction(out, sizes[0]), _fraction(into, sizes[1])),
        (rounded(squares[0]), rounded(squares[1])),
        rounded(through) if same else None,
        (_most(out), _most(into)),
    )


def _mean_of_squares(degrees: Counts, rows: int) -> float:
    values = degrees.astype(np.float64)
    return float(values @ values) / rows


def _fraction(degrees: Counts, size: int) -> float:
    return round(min(int(np.count_nonzero(degrees)) / size, 1.0), 1)


def _most(degrees: Counts) -> float:
    # Whether it is one is exact.
    return rounded(float(degrees.max(initial=0)))
