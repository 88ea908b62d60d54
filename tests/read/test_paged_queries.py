"""Random queries in pages: the rows of the query, in one order, whichever handle reads a page."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph, QueryError
from omnigraph.api import page_cache
from omnigraph.lang.query import typed
from omnigraph.lang.query.params import convert_params
from omnigraph.read.order import SortColumn, sort_indices
from tests.read.generate import make_question, make_world
from tests.read.naive import answer
from tests.read.test_agreement import MAKERS, _plain, compare, traversal
from tests.read.world import NOW, check, read_back
from tests.rotation import rotation

QUESTIONS = 40


def rows_of(pages: Any) -> list[tuple[Any, ...]]:
    return [tuple(map(_plain, row.values())) for page in pages for row in page.result.rows()]


def read_alternately(handles: list[Graph], size: int, *query: Any) -> list[tuple[Any, ...]]:
    """All rows; every page is read through another handle."""
    read, cursor, number = [], None, 0
    while True:
        handle = handles[number % len(handles)]
        page = next(handle.pages(*query, page_size=size, cursor=cursor))
        read.append(page)
        cursor, number = page.cursor, number + 1
        if cursor is None:
            return rows_of(read)


def check_pages(graph: Graph, others: list[Graph], random: Random) -> bool:
    """Compare the pages of one random query; returns whether it is valid."""
    question = make_question(random, graph.catalog)
    params = {**question.params, typed.NOW_PARAMETER: NOW}
    try:
        query = check(graph.catalog, question.text)
    except QueryError:
        return False
    expected = answer(query, read_back(graph), convert_params(query.params, params))
    whole = rows_of(graph.pages(question.text, "q", params, page_size=10_000))
    compare(query, whole, expected)
    for size in (1, 3):
        paged = read_alternately(others, size, question.text, "q", params)
        if not any(isinstance(value, float) for row in whole for value in row):
            assert list(map(repr, paged)) == list(map(repr, whole)), question.text
        else:
            # Sums may differ in their last digit.
            assert len(paged) == len(whole), question.text
            compare(query, paged, expected)
    return True


@pytest.mark.parametrize("maker", MAKERS)
def test_pages_are_the_rows_of_the_query(tmp_path, monkeypatch, maker):
    monkeypatch.setattr(page_cache, "MOST_BYTES", 0)
    random = Random(f"{rotation()} {maker}")
    world = make_world(random, 9, 14)
    root = tmp_path / "g.omni"
    with Graph.init(root, world.schema, durability="os") as graph:
        MAKERS[maker](graph, world, random)
        others = [graph]
        for mode in ("indexed", "csr"):
            with traversal(mode):
                others.append(Graph.open(root, "r"))
        counts = Counter(check_pages(graph, others, random) for _ in range(QUESTIONS))
        assert counts[True] >= QUESTIONS // 4
        for other in others[1:]:
            other.close()


def test_a_column_of_nothing_but_null_does_not_order():
    nulls, numbers = pa.nulls(3), pa.array([2, 1, 3])
    assert sort_indices([SortColumn(nulls), SortColumn(numbers)]).tolist() == [1, 0, 2]
    assert sort_indices([SortColumn(nulls, True)]).tolist() == [0, 1, 2]
