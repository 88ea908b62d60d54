"""What is measured of tables for the planner."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.plan.statistics import rounded
from omnigraph.topology.measures import Measures, column_facts, measured_degrees

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40)


@given(pairs=PAIRS)
def test_degrees_are_those_of_the_edges(pairs):
    out = [sum(src == n for src, _ in pairs) for n in range(10)]
    into = [sum(dst == n for _, dst in pairs) for n in range(10)]
    actual = measured_degrees(
        np.bincount([src for src, _ in pairs]),
        np.bincount([dst for _, dst in pairs]),
        (10, 20),
        same=True,
    )
    rows = len(pairs)
    assert actual.means == (rounded(rows / 10), rounded(rows / 20))
    assert actual.fractions == (
        round(sum(map(bool, out)) / 10, 1),
        round(sum(map(bool, into)) / 20, 1),
    )
    assert actual.squares == (
        rounded(sum(n * n for n in out) / rows),
        rounded(sum(n * n for n in into) / rows),
    )
    assert actual.through == rounded(sum(a * b for a, b in zip(out, into, strict=True)) / rows)
    assert actual.most == (rounded(max(out)), rounded(max(into)))


def test_edges_between_two_types_have_no_nodes_in_the_middle():
    ones = np.ones(3, np.int64)
    actual = measured_degrees(ones, ones, (3, 3), same=False)
    assert actual.through is None
    assert actual.most == (1.0, 1.0)


@pytest.mark.parametrize("rows", [40, 200_000])
@pytest.mark.parametrize("values", [1, 8, 20])
def test_distinct_values_are_estimated(rows, values):
    column = pa.array([f"v{n * 7919 % values}" for n in range(rows)])
    assert column_facts(column).distinct == pytest.approx(values, rel=0.25)


def test_a_column_of_unique_values_seems_to_have_many():
    facts = column_facts(pa.array(range(200_000)))
    assert facts.distinct > 20_000


def test_nulls_are_counted():
    assert column_facts(pa.array([None, None, None, 1])).nulls == 0.8
    assert column_facts(pa.array([None, None], pa.int32())).distinct == 0.0


def test_measures_hold_until_an_eighth_of_the_rows_has_changed():
    measures = Measures()
    measures.note_column("a", pa.array([1] * 80), {"x": 80})
    first = measures.facts
    measures.note_column("a", pa.array(range(88)), {"x": 80, "y": 8})
    assert measures.facts is first
    measures.note_column("a", pa.array(range(100)), {"x": 80, "y": 8, "z": 12})
    assert measures.facts.columns["a"].distinct == rounded(100)


def test_rows_that_were_replaced_are_measured_again():
    """The table has as many rows as before, but they are others."""
    measures = Measures()
    measures.note_column("a", pa.array([1] * 80), {"x": 40, "y": 40})
    measures.note_column("a", pa.array(range(80)), {"x": 40, "z": 40})
    assert measures.facts.columns["a"].distinct == rounded(80)


def test_degrees_are_counted_only_if_the_measured_ones_do_not_hold():
    measures, counted = Measures(), []

    def degrees(most):
        counted.append(most)
        return np.array([most, 1]), np.ones(most + 1, np.int64)

    for rows in (16, 17, 18, 19):
        measures.note_degrees(lambda: degrees(15), (2, 16), {"x": 16, "y": rows - 16}, same=False)
    assert counted == [15, 15]
    restored = Measures.from_json(json.loads(json.dumps(measures.to_json())))
    assert restored.facts == measures.facts
    restored.note_degrees(lambda: degrees(9), (2, 16), {"x": 16, "y": 3}, same=False)
    assert counted == [15, 15]


def test_facts_that_are_measured_again_and_equal_are_the_same_object():
    """Plans are cached by them."""
    measures = Measures()
    for count in (80, 160):
        measures.note_column("a", pa.array([1, 2] * count), {f"{count}": 2 * count})
        facts = measures.facts
    ones = np.ones(4, np.int64)
    measures.note_degrees(lambda: (ones, ones), (4, 4), {"x": 4}, same=False)
    assert measures.facts.columns is facts.columns
