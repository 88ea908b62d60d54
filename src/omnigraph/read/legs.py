"""The legs of an intersection: which of them leads a row, and the tests against the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from omnigraph.plan.costs import FOLLOW, NARROW_TEST, TEST
from omnigraph.topology.edges import BOTH, IN, OUT

if TYPE_CHECKING:
    from omnigraph.plan.nodes import Intersect
    from omnigraph.read.frame import Frame, Ints, Mask, Numbers
    from omnigraph.read.run import Run
    from omnigraph.read.sources import EdgeSource
    from omnigraph.topology.adjacency import Adjacency

# One leg leads all rows unless leading each row by its cheapest one costs this share of it at most:
# rows that are led by one leg are followed in their order, without being picked.
_WORTH_IT = 0.9
# For up to this many rows, no adjacency is built only to count their output rows.
FEW_STARTS = 4_096


class LegTests:
    """One leg of an intersection: its neighbours, and the test whether it joins two nodes."""

    def __init__(self, source: EdgeSource, direction: str, starts: Numbers) -> None:
        self.adjacency = source.index().adjacency(direction)
        self.starts = starts
        self._reverse = None if self.adjacency.is_narrow else _narrow_reverse(source, direction)

    @property
    def test_cost(self) -> float:
        """The cost of testing a pair, in that of following an edge."""
        is_narrow = self.adjacency.is_narrow or self._reverse is not None
        return NARROW_TEST if is_narrow else TEST

    def joins(self, sources: Numbers, targets: Numbers) -> Mask:
        """Whether pairs of a start and a target are joined."""
        if self._reverse is not None:
            return self._reverse.contains(targets, sources)
        return self.adjacency.contains(sources, targets)


def _narrow_reverse(source: EdgeSource, direction: str) -> Adjacency | None:
    """The adjacency of the opposite direction, if its sources have few neighbours each."""
    far = source.ends[0 if direction == IN else 1]
    if direction == BOTH or source.rows > 2 * far.rows:
        return None
    reverse = source.index().adjacency(OUT if direction == IN else IN)
    return reverse if reverse.is_narrow else None


class Leads(NamedTuple):
    """For each row the number of the leg that leads it, and how many nodes it tests."""

    numbers: npt.NDArray[np.int8]
    tested: Ints


def leads(legs: list[LegTests]) -> Leads:
    """The leg that leads each row.

    The neighbours of the leading leg are tested against the others, so it is the one with the
    fewest, unless the tests against it are much cheaper.
    """
    tests = sum(leg.test_cost for leg in legs)
    costs = [FOLLOW + tests - leg.test_cost for leg in legs]
    is_even = min(costs) == max(costs)
    degrees = [leg.adjacency.degrees(leg.starts) for leg in legs]
    # With equal costs the numbers of neighbours are compared.
    spent = [d if is_even else d * cost for d, cost in zip(degrees, costs, strict=True)]
    lead = np.zeros(len(degrees[0]), np.int8)
    least, fewest = spent[0], degrees[0]
    for number in range(1, len(legs)):
        is_less = spent[number] < least
        np.copyto(lead, np.int8(number), where=is_less)
        if is_even:
            least = fewest = np.minimum(fewest, degrees[number])
        else:
            least = np.minimum(least, spent[number])
            fewest = np.where(is_less, degrees[number], fewest)
    totals = [cost.sum() for cost in spent]
    best = int(np.argmin(totals))
    if least.sum() > _WORTH_IT * totals[best]:
        return Leads(np.full(len(lead), best, np.int8), degrees[best])
    return Leads(lead, fewest)


def leads_of(run: Run, step: Intersect, frame: Frame) -> Leads | None:
    """What leads the rows of an intersection; ``None`` if nothing has to be divided."""
    legs = []
    for leg in step.legs:
        source = run.visible_edges(leg.edge_type, leg.through)
        if source is None or (source.cached_index() is None and frame.rows <= FEW_STARTS):
            return None
        legs.append(LegTests(source, str(leg.direction), run.numbers(frame, leg.src)))
    return leads(legs)
