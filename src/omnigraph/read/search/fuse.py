"""Two rankings made one, by reciprocal rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.storage.tables.search import Hits

DEFAULT_K = 60


def fuse(
    primary: npt.NDArray[np.uint64], secondary: npt.NDArray[np.uint64], k: int = DEFAULT_K
) -> Hits:
    """Rows of two rankings, best first, with their fused scores.

    A row scores 1 / (k + rank + 1) for each ranking it is in, ranks counted from 0. Equal scores
    keep the order of the primary ranking; rows that are only in the secondary come after those.

    >>> a, b = np.array([7, 8], np.uint64), np.array([8, 9], np.uint64)
    >>> fuse(a, b, 1).row_ids.tolist()
    [8, 7, 9]
    """
    rows, first = np.unique(np.concatenate([primary, secondary]), return_index=True)
    scores = np.zeros(len(rows), np.float64)
    for ranking in (primary, secondary):
        np.add.at(scores, np.searchsorted(rows, ranking), 1.0 / (k + 1.0 + np.arange(len(ranking))))
    order = np.lexsort((first, -scores))
    return Hits(rows[order].astype(np.uint64, copy=False), scores[order])
