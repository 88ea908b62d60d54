"""The numbers of groups: in the order of their first rows, however many rows and values."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.read.aggregate import _numbered


@pytest.mark.parametrize("late", [False, True], ids=["all at the start", "one comes last"])
@pytest.mark.parametrize(
    ("rows", "size"), [(1, 1), (100, 7), (5_000, 7), (5_000, 300), (900, 5_000)]
)
def test_groups_are_numbered_in_the_order_of_their_first_rows(rows, size, late):
    codes = np.random.default_rng(rows).integers(0, size, rows)
    if late:
        codes[codes == 0] = size - 1
        codes[-1] = 0
    groups, first = _numbered(codes, size)
    wanted = list(dict.fromkeys(codes.tolist()))
    assert codes[first].tolist() == wanted
    assert groups.tolist() == [wanted.index(code) for code in codes.tolist()]
