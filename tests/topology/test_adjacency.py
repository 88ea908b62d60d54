"""Adjacencies against plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.topology import adjacency as adjacencies
from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency, spread

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)
SOURCES = st.lists(st.integers(0, 15), max_size=12)


def ends(pairs):
    src = np.array([pair[0] for pair in pairs], np.int32)
    dst = np.array([pair[1] for pair in pairs], np.int32)
    return src, dst


def neighbours(pairs, source):
    return sorted({dst for src, dst in pairs if src == source})


@given(PAIRS, SOURCES)
def test_neighbours_come_once_and_in_order(pairs, sources):
    """Also for sources beyond the greatest, and for one that is asked for twice."""
    adjacency = Adjacency.of(*ends(pairs))
    owners, targets = adjacency.neighbours(np.array(sources, np.int32))
    actual = list(zip(owners.tolist(), targets.tolist(), strict=True))
    assert actual == [(i, t) for i, s in enumerate(sources) for t in neighbours(pairs, s)]
    degrees = adjacency.degrees(np.array(sources, np.int32)).tolist()
    assert degrees == [len(neighbours(pairs, s)) for s in sources]


@pytest.mark.parametrize("few", [1, 10**9])
@given(PAIRS, SOURCES)
def test_neighbours_are_copied_or_taken_by_their_indices(few, pairs, sources):
    """Consecutive sources among them, whose neighbours are a slice."""
    adjacency = Adjacency.of(*ends(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacencies, "_FEW_LISTS", few)
        for given_sources in (sources, sorted(sources), range(3, 12)):
            numbers = np.array(given_sources, np.int32)
            targets = adjacency.targets_of(numbers, adjacency.degrees(numbers))
            assert targets.dtype == np.int32
            assert targets.tolist() == [t for s in given_sources for t in neighbours(pairs, s)]


@pytest.mark.parametrize("piece", [1, 7, 10**6])
@given(PAIRS, st.lists(st.integers(-(2**40), 2**40), min_size=10, max_size=10))
def test_sums_of_the_weights_of_neighbours(piece, pairs, weights):
    adjacency = Adjacency.of(*ends(pairs))
    assert adjacency.reach == max((dst for _, dst in pairs), default=-1) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacencies, "_PIECE", piece)
        pieces = list(adjacency.pieces())
    sources = len(adjacency.offsets) - 1
    assert [n for begin, end in pieces for n in range(begin, end)] == list(range(sources))
    sums = [adjacency.sums_of(np.array(weights), begin, end) for begin, end in pieces]
    expected = [sum(weights[t] for t in neighbours(pairs, s)) for s in range(sources)]
    assert np.concatenate(sums).tolist() == expected


@given(targets=st.dictionaries(st.integers(0, 9), st.integers(0, 9)), sources=SOURCES)
def test_the_only_neighbour_of_each_source(targets, sources):
    pairs = list(targets.items())
    adjacency = Adjacency.of(*ends(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacencies, "_FEW_TESTS", 0)
        owners, reached = adjacency.neighbours(np.array(sources, np.int32))
    expected = [(i, targets[s]) for i, s in enumerate(sources) if s in targets]
    assert list(zip(owners.tolist(), reached.tolist(), strict=True)) == expected
    assert (owners.dtype, reached.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize("bits", [0, 1 << 28])
@pytest.mark.parametrize("few", [0, 4])
@pytest.mark.parametrize("tests", [0, 4_096])
@given(
    pairs=PAIRS, requested=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=40)
)
def test_membership(few, bits, tests, pairs, requested):
    """By looking at each neighbour, by bits, and by a search, after a filter or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacencies, "_FEW_NEIGHBOURS", few)
        patch.setattr(adjacencies, "_FEW_BITS", bits)
        patch.setattr(adjacencies, "_MOST_BITS", bits)
        patch.setattr(adjacencies, "_FEW_TESTS", tests)
        adjacency = Adjacency.of(*ends(pairs))
        for _ in range(2):
            actual = adjacency.contains(*ends(requested)).tolist()
            assert actual == [pair in set(pairs) for pair in requested]


@given(PAIRS, PAIRS)
def test_edges_that_are_added_later_are_as_if_they_had_always_been_there(before, after):
    extended = Adjacency.of(*ends(before)).with_edges(*ends(after))
    whole = Adjacency.of(*ends([*before, *after]))
    assert extended.offsets.tolist() == whole.offsets.tolist()
    assert extended.targets.tolist() == whole.targets.tolist()


@given(PAIRS, SOURCES)
def test_edges_come_each_with_its_row(pairs, sources):
    rows = np.arange(len(pairs), dtype=np.int64) + 100
    adjacency = EdgeAdjacency.of(*ends(pairs), rows)
    actual = adjacency.edges(np.array(sources, np.int32))
    expected = [
        (location, dst, 100 + row)
        for location, source in enumerate(sources)
        for row, (src, dst) in enumerate(pairs)
        if src == source
    ]
    assert sorted(zip(*(part.tolist() for part in actual), strict=True)) == sorted(expected)


@given(PAIRS, PAIRS)
def test_either_direction_is_merged_from_both_and_extended(before, after):
    """A loop and a pair that is joined both ways are one neighbour."""
    src, dst = ends(before)
    merged = Adjacency.in_either_direction(Adjacency.of(src, dst), Adjacency.of(dst, src))
    new_src, new_dst = ends(after)
    extended = merged.with_edges(
        np.concatenate([new_src, new_dst]), np.concatenate([new_dst, new_src])
    )
    for adjacency, pairs in ((merged, before), (extended, [*before, *after])):
        either = {*pairs, *((b, a) for a, b in pairs)}
        _, targets = adjacency.neighbours(np.arange(10, dtype=np.int32))
        assert targets.tolist() == [t for s in range(10) for t in neighbours(either, s)]


@pytest.mark.parametrize("least", [0, 1], ids=["some are empty", "none is empty"])
@pytest.mark.parametrize("ranges", [0, 1, 40, 3_000])
def test_ranges_are_expanded_in_the_same_way_whatever_their_number(ranges, least):
    random = np.random.default_rng(ranges)
    starts = random.integers(0, 10**6, ranges)
    counts = random.integers(least, 40, ranges)
    if ranges:
        counts[0] += (1 << 15) * (ranges < 100 and least)
    owners, indices = spread(starts, counts)
    wanted = [
        start + step for start, count in zip(starts, counts, strict=True) for step in range(count)
    ]
    assert indices.tolist() == wanted
    assert owners.tolist() == np.repeat(np.arange(ranges), counts).tolist()
