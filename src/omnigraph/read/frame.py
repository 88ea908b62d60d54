"""The intermediate rows of a query: a node number for each variable, and the values read so far.

A variable that is no longer needed is dropped, and rows that are equal in all other variables are
merged into one row with a weight. So the number of rows depends on the number of distinct results,
not on the number of paths that lead to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import LimitExceeded
from omnigraph.lang.values.numpy_view import arrow_view
from omnigraph.records import dataclass
from omnigraph.topology.sets import without_repeats

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
# Numbers are sorted, not counted, if the greatest is more than so many times their count; then
# equal ones are merged if they leave at most such a part, because weights have a cost, too.
_SPARSE, _MERGED = 2, 0.75


@dataclass(slots=True)
class Frame:
    """Rows in columns. ``nodes`` are numbers of nodes, ``edges`` rows of edge tables.

    ``values`` are columns read so far, by variable and name.
    """

    rows: int
    nodes: dict[str, Numbers] = field(default_factory=dict)
    edges: dict[str, Ints] = field(default_factory=dict)
    values: dict[tuple[str, str], pa.Array] = field(default_factory=dict)
    weights: Ints | None = None

    @property
    def variables(self) -> set[str]:
        """The variables with a column."""
        names = {*self.nodes, *self.edges}
        return names | {variable for variable, _ in self.values} if self.values else names

    @property
    def nbytes(self) -> int:
        size = 0 if self.weights is None else self.weights.nbytes
        for columns in (self.nodes, self.edges, self.values):
            for column in columns.values():
                size += column.nbytes
        return size

    @property
    def width(self) -> int:
        """About how many bytes one row takes."""
        return self.nbytes // self.rows if self.rows else 8 * (len(self.nodes) + len(self.edges))

    def take(self, indices: Ints) -> Frame:
        """The rows at the given indices, in that order."""
        taken = arrow_view(indices) if self.values else None
        return Frame(
            len(indices),
            {name: column.take(indices) for name, column in self.nodes.items()},
            {name: column.take(indices) for name, column in self.edges.items()},
            {key: column.take(taken) for key, column in self.values.items()},
            None if self.weights is None else self.weights.take(indices),
        )

    def where(self, mask: Mask) -> Frame:
        """The rows where the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, count: int) -> Frame:
        end = min(start + count, self.rows)
        return Frame(
            max(end - start, 0),
            {name: column[start:end] for name, column in self.nodes.items()},
            {name: column[start:end] for name, column in self.edges.items()},
            {key: column.slice(start, end - start) for key, column in self.values.items()},
            None if self.weights is None else self.weights[start:end],
        )

    def keeping(self, variables: Iterable[str]) -> Frame:
        """The same rows with only some of the variables."""
        kept = set(variables)
        return Frame(
            self.rows,
            {name: column for name, column in self.nodes.items() if name in kept},
            {name: column for name, column in self.edges.items() if name in kept},
            {key: column for key, column in self.values.items() if key[0] in kept},
            self.weights,
        )

    def counts(self) -> Ints:
        """The weight of each row."""
        return np.ones(self.rows, np.int64) if self.weights is None else self.weights

    def total(self) -> Ints:
        """The sum of the weights, as an array of length 1; raises if it exceeds 64 bits."""
        return sums(np.zeros(self.rows, np.int64), self.counts(), 1)

    def repeated(self, size: int) -> Iterator[Frame]:
        """Every row repeated by its weight, ``size`` rows at a time."""
        self.total()
        for indices in repeat_indices(self.counts(), size):
            rows = self.take(indices)
            rows.weights = None
            yield rows

    def merged(self, *, weighted: bool) -> Frame:
        """Merge equal rows, where that is cheap; ``weighted`` keeps their number as the weight."""
        if self.values or self.edges or len(self.nodes) > 1 or not self.rows:
            return self
        if not self.nodes:
            return Frame(1, weights=self.total() if weighted else None)
        ((name, numbers),) = self.nodes.items()
        kept, weights = _grouped(numbers, self.weights, weighted=weighted)
        return Frame(len(kept), {name: kept}, weights=weights)


def repeat_indices(weights: Ints, size: int) -> Iterator[Ints]:
    """Every row index repeated by the weight of the row, ``size`` at a time."""
    ends = np.cumsum(weights)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, size):
        wanted = np.arange(start, min(start + size, total))
        yield np.searchsorted(ends, wanted, side="right")


def _grouped(
    numbers: Numbers, weights: Ints | None, *, weighted: bool
) -> tuple[Numbers, Ints | None]:
    """Numbers in order; equal ones are merged, with the sum of their weights, if that is cheap."""
    if (weights is None or not weighted) and len(numbers) * _SPARSE < int(numbers.max()):
        return _grouped_by_sorting(numbers, weighted=weighted)
    if not weighted:
        seen = np.zeros(int(numbers.max()) + 1, bool)
        seen[numbers] = True
        return np.flatnonzero(seen).astype(np.int32), None
    counts = np.bincount(numbers) if weights is None else sums(numbers, weights, 0)
    # Far faster on flags than on numbers.
    kept = np.flatnonzero(counts > 0)
    return kept.astype(np.int32), counts[kept]


def _grouped_by_sorting(numbers: Numbers, *, weighted: bool) -> tuple[Numbers, Ints | None]:
    """``_grouped`` for few numbers of a large range."""
    ordered = np.sort(numbers)
    if not weighted:
        return without_repeats(ordered), None
    ends = np.flatnonzero(ordered[1:] != ordered[:-1])
    if len(ends) >= len(ordered) * _MERGED:
        return ordered, None
    ends = np.append(ends, len(ordered) - 1)
    return ordered.take(ends), np.diff(ends, prepend=-1)


_EXACT = 2.0**53
_MOST = 2.0**63


def sums(groups: npt.NDArray[np.integer], weights: Ints, count: int) -> Ints:
    """The sum of the weights of each of ``count`` groups or more, exactly."""
    rough = np.bincount(groups, weights.astype(np.float64), count)
    if not len(rough) or rough.max() < _EXACT:
        # Sums of floats are exact below 2^53.
        return rough.astype(np.int64)
    _refuse_beyond(rough)
    exact = np.zeros(len(rough), np.int64)
    np.add.at(exact, groups, weights)
    return exact


def times(left: Ints, right: Ints) -> Ints:
    """The product of weights, exactly."""
    _refuse_beyond(left.astype(np.float64) * right)
    return left * right


def _refuse_beyond(rough: npt.NDArray[Any]) -> None:
    if len(rough) and rough.max() >= _MOST * (1 - 2.0**-40):
        raise LimitExceeded(
            "the pattern has more rows than 64 bits can count",
            hint="narrow it, or count something distinct",
        )


def product(left: Frame, right: Frame) -> Frame:
    """The Cartesian product; the rows of ``left`` vary slowest."""
    owners = np.repeat(np.arange(left.rows), right.rows)
    inner = np.tile(np.arange(right.rows), left.rows)
    a, b = left.take(owners), right.take(inner)
    weights = None
    if a.weights is not None or b.weights is not None:
        weights = times(a.counts(), b.counts())
    return Frame(
        a.rows, {**a.nodes, **b.nodes}, {**a.edges, **b.edges}, {**a.values, **b.values}, weights
    )
