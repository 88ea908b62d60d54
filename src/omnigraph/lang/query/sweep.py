"""In which order traversals can be taken, starting from what is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush


def sweep_order(ends: Sequence[tuple[str, str]], bound: Iterable[str]) -> list[int]:
    """The positions of traversals in an order where each has a known end, if one can have.

    It is the order of sweeps over the list, again and again, that take whatever has a known end
    and make its other end known. When nothing has one, the first that is left is taken.

    >>> sweep_order([("b", "c"), ("a", "b")], ["a"])
    [1, 0]
    """
    waiting: dict[str, list[int]] = {}
    for position, pair in enumerate(ends):
        for name in dict.fromkeys(pair):
            waiting.setdefault(name, []).append(position)
    ready: list[tuple[int, int]] = []

    def learn(name: str, sweep: int, at: int) -> None:
        # Later entries of the list belong to this sweep, the rest to the next one.
        for position in waiting.pop(name, ()):
            heappush(ready, (sweep if position > at else sweep + 1, position))

    for name in bound:
        learn(name, 0, -1)
    order: list[int] = []
    taken = [False] * len(ends)
    sweep, first_left = 0, 0
    while len(order) < len(ends):
        if ready:
            sweep, position = heappop(ready)
        else:
            while taken[first_left]:
                first_left += 1
            position = first_left
        if taken[position]:
            continue
        taken[position] = True
        order.append(position)
        for name in ends[position]:
            learn(name, sweep, position)
    return order
