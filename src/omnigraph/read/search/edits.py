"""Edit distance: which terms are within some edits of another.

An edit inserts, removes or replaces one character; two swapped ones are two edits. That is how the
text indexes count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def within_edits(terms: Sequence[str], wanted: str, edits: int) -> npt.NDArray[np.bool_]:
    """For each term, whether it can be made from another by so many edits.

    >>> within_edits(["fox", "ox", "xof", "whale"], "fox", 1).tolist()
    [True, True, False, False]
    """
    near = np.zeros(len(terms), np.bool_)
    if not terms:
        return near
    lengths = np.fromiter(map(len, terms), np.int64, len(terms))
    candidates = np.flatnonzero(np.abs(lengths - len(wanted)) <= edits)
    if len(candidates):
        chosen = [terms[position] for position in candidates.tolist()]
        near[candidates] = _distances(chosen, lengths[candidates], wanted) <= edits
    return near


def _distances(
    terms: list[str], lengths: npt.NDArray[np.int64], wanted: str
) -> npt.NDArray[np.int32]:
    """The edit distance of every term at once: one table, one layer for each term."""
    width = max(1, int(lengths.max()))
    letters = np.array(terms, dtype=f"<U{width}").view(np.uint32).reshape(len(terms), width)
    row = np.broadcast_to(np.arange(width + 1, dtype=np.int32), (len(terms), width + 1)).copy()
    for position, letter in enumerate(wanted, start=1):
        before = row
        row = np.empty_like(before)
        row[:, 0] = position
        replaced = before[:, :-1] + (letters != ord(letter))
        shorter = before[:, 1:] + 1
        best = np.minimum(replaced, shorter)
        for column in range(width):
            row[:, column + 1] = np.minimum(best[:, column], row[:, column] + 1)
    result: npt.NDArray[np.int32] = row[np.arange(len(terms)), lengths]
    return result
