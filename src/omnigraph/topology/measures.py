"""Statistics of a table for the planner, measured when its adjacencies and columns are made.

Degrees are counted from the arrays of an index, distinct values estimated from samples of columns.
What was measured holds for other versions of the table until an eighth of the rows are in other
fragments: rows that were added, removed or replaced. The facts themselves are not kept by fragment:
the degrees of a node add up over all fragments, so neither their moments nor the number of nodes
with edges are sums of those of fragments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
Fragments = Mapping[str, int]
"""The number of rows of each fragment, by its signature."""


class Measures:
    """What was measured of one table. Safe to share between threads: facts are replaced."""

    __slots__ = ("_measured", "facts", "is_stored")

    def __init__(self) -> None:
        self.facts = TableFacts({})
        self._measured: dict[str, Fragments] = {}
        self.is_stored = True
        """Whether a derived file has these facts."""

    @property
    def rows(self) -> int:
        """The number of rows that were measured."""
        return max((sum(rows.values()) for rows in self._measured.values()), default=0)

    @property
    def fragments(self) -> int:
        """The number of fragments that were measured."""
        return max(map(len, self._measured.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        return {"facts": asdict(self.facts), "fragments": self._measured}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measures:
        measures = cls()
        columns = {name: ColumnFacts(**item) for name, item in data["facts"]["columns"].items()}
        degrees = data["facts"]["degrees"]
        if degrees is not None:
            degrees = Degrees(**{name: _restored(value) for name, value in degrees.items()})
        measures.facts = TableFacts(columns, degrees)
        measures._measured = {name: dict(rows) for name, rows in data["fragments"].items()}
        return measures

    def _holds(self, name: str, fragments: Fragments) -> bool:
        measured = self._measured.get(name)
        if measured is None:
            return False
        rows = sum(measured.values())
        same = sum(measured[signature] for signature in fragments if signature in measured)
        return max(rows, sum(fragments.values())) - same <= _MOST_CHANGE * rows

    def note_column(self, name: str, column: pa.Array, fragments: Fragments) -> None:
        """Measure a column that was read."""
        if self._holds(name, fragments) or not len(column) or pa.types.is_nested(column.type):
            return
        self._measured[name] = fragments
        facts = column_facts(column)
        if self.facts.columns.get(name) != facts:
            self.facts = replace(self.facts, columns={**self.facts.columns, name: facts})
            self.is_stored = False

    def note_degrees(
        self,
        degrees_of: Callable[[], tuple[Counts, Counts]],
        nodes: tuple[int, int],
        fragments: Fragments,
        *,
        same: bool,
    ) -> None:
        """Measure the degrees of an edge table.

        ``degrees_of`` counts the edges of each source and of each target, of which there may be
        ``nodes``; ``same`` is whether both are numbers of one type.
        """
        if self._holds(_DEGREES, fragments):
            return
        self._measured[_DEGREES] = fragments
        degrees = measured_degrees(*degrees_of(), nodes, same=same)
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
