"""What the validator reports, in which order, and what it looks at to know."""

from __future__ import annotations

import lance
import pytest

from omnigraph.errors import CardinalityViolation, OrphanEdge, UniqueViolation, ValueViolation
from omnigraph.storage.tables.table import Table
from omnigraph.write.validate import Validator
from tests.write.deltas import (
    APPEND,
    DELETE,
    OVERWRITE,
    UPDATE,
    UPSERT,
    actual,
    delta,
    everything_wrong,
    judged,
    texts,
)

# -- first and all ----------------------------------------------------------------------------


def test_all_violations_come_in_a_fixed_order(ruled):
    """Values, uniqueness, ends, cardinality."""
    assert [kind for kind, _, _ in actual(ruled, *everything_wrong(ruled))] == [
        ValueViolation,
        UniqueViolation,
        OrphanEdge,
        CardinalityViolation,
    ]
    assert actual(ruled, *reversed(everything_wrong(ruled))) == actual(
        ruled, *everything_wrong(ruled)
    )


def test_a_write_reports_the_first_violation_only(ruled):
    deltas = {change.table_key: change for change in everything_wrong(ruled)}
    assert len(judged(ruled, *deltas.values(), limit=1).violations) == 1
    validator = Validator(ruled._handle.store, ruled.catalog, deltas)
    with pytest.raises(ValueViolation) as caught:
        validator.check(ruled._handle.store.manifest(None).current())
    details = {"table_key": "node:P", "id": "p", "property": "age", "value": "151"}
    assert caught.value.details == details


# -- what it looks at -------------------------------------------------------------------------


class Looks:
    """Every read of a table, with its columns and whether it was a lookup."""

    def __init__(self, patch):
        self.lookups, self.scans = [], []
        for name in ("read", "scan"):
            patch.setattr(Table, name, self._spied(getattr(Table, name)))

    def _spied(self, real):
        def spy(table, columns=None, condition=None, **how):
            reported = self.scans if condition is None and how.get("limit") != 0 else self.lookups
            reported.append((table.ref.path, condition))
            return real(table, columns, condition, **how)

        return spy


@pytest.fixture
def looks(monkeypatch):
    return Looks(monkeypatch)


LOOKS = {
    "a keyed node without other rules": ([("Plain", UPSERT, [{"name": "p"}], [])], 0, []),
    "an update of it": ([("Plain", UPDATE, [{"name": "p"}], [])], 0, []),
    "a node without a unique value": ([("P", UPSERT, [{"name": "p"}], [])], 0, []),
    "a node with one": ([("P", UPSERT, [{"name": "p", "mail": "m"}], [])], 1, []),
    "a strict append of a node": ([("Q", APPEND, [{"name": "p"}], [])], 1, []),
    "an edge": ([("Knows", APPEND, [("n", "a", "b")], [])], 3, ["node:P"]),
    "an edge between two types": (
        [("Back", APPEND, [("n", "x", "a")], [])],
        3,
        ["node:P", "node:Q"],
    ),
    "an edge with its ends": (
        [("Knows", UPSERT, [("n", "p", "p")], []), ("P", UPSERT, [{"name": "p"}], [])],
        0,
        [],
    ),
    "an edge with one of its ends": (
        [("Knows", UPSERT, [("n", "p", "a")], []), ("P", UPSERT, [{"name": "p"}], [])],
        1,
        [],
    ),
    "an edge that is counted": ([("To", UPSERT, [("n", "c", "x")], [])], 4, ["node:P", "node:Q"]),
    "an update of an edge": ([("Knows", UPDATE, [("k1", "a", "b")], [])], 0, []),
    "a delete of an edge": ([("Knows", DELETE, [], ["k1"])], 0, []),
    "a delete of an edge that is counted": ([("To", DELETE, [], ["t1"])], 2, []),
    "a delete of a node": (
        [("Q", DELETE, [], ["y"]), ("To", DELETE, [], ["t2"])],
        5,
        ["edge:Back", "edge:Once"],
    ),
    "an overwrite of edges": ([("Knows", OVERWRITE, [("n", "a", "b")], [])], 2, ["node:P"]),
    "an overwrite of a node type without edges": (
        [("Plain", OVERWRITE, [{"name": "p"}], [])],
        0,
        [],
    ),
}


@pytest.mark.parametrize(("changes", "lookups", "consulted"), LOOKS.values(), ids=list(LOOKS))
def test_few_rows_are_looked_up_and_nothing_is_scanned(ruled, looks, changes, lookups, consulted):
    """The cost follows the delta, and what was consulted is told to the fence."""
    deltas = [delta(ruled, name, effect, *rows, deleted=d) for name, effect, rows, d in changes]
    judgement = judged(ruled, *deltas)
    assert judgement.violations == ()
    assert (len(looks.lookups), looks.scans) == (lookups, [])
    versions = {key: table["version"] for key, table in ruled.snapshot().tables.items()}
    assert judgement.consulted == {key: versions[key] for key in consulted}


def test_ids_that_are_new_are_not_looked_for(ruled, looks):
    change = delta(ruled, "Plain", APPEND, {"name": "p"}, new_ids=True)
    assert judged(ruled, change).consulted == {}
    assert (looks.lookups, looks.scans) == ([], [])


def test_an_overwrite_of_nodes_reads_their_ids_and_looks_for_edges_of_those_that_go(ruled, looks):
    judged(ruled, delta(ruled, "Q", OVERWRITE, {"name": "x"}, {"name": "y"}))
    assert (len(looks.lookups), len(looks.scans)) == (0, 1)


def test_a_table_of_a_delta_without_rows_is_asserted_like_any_other(ruled):
    """Nothing of it is written, so nothing else would notice that it moved."""
    nodes = delta(ruled, "P", UPSERT)
    edges = delta(ruled, "Knows", APPEND, ("n", "a", "b"))
    assert list(judged(ruled, nodes, edges).consulted) == ["node:P"]


def test_many_rows_are_compared_in_one_pass(ruled, looks):
    """A lookup of thousands of keys would be slower than a look at the column."""
    rows = [{"name": f"p{i}", "mail": f"m{i}"} for i in range(1_200)]
    change = delta(ruled, "P", APPEND, *rows, {"name": "b", "mail": "a@"})
    assert texts(ruled, change) == [
        "node:P: there is a row with id 'b' already",
        "@unique violation on P.mail: value 'a@' held by 'a' and 'b'",
    ]
    assert [path for path, _ in looks.scans] == [looks.scans[0][0]] * 2
    assert looks.lookups == []


def test_lookups_are_answered_by_the_index(ruled, looks):
    """Every condition of a small delta is one that Lance answers from the index."""
    ruled.indexes.ensure()
    looks.lookups.clear()
    edges = delta(ruled, "To", UPSERT, ("n", "c", "x"))
    nodes = delta(ruled, "P", APPEND, {"name": "p", "mail": "m"})
    assert judged(ruled, edges, nodes).violations == ()
    assert len(looks.lookups) >= 5
    for path, condition in looks.lookups:
        plan = lance.dataset(f"{ruled.uri}/{path}").scanner(filter=condition).explain_plan()
        # A property without @index has none.
        assert ("ScalarIndexQuery" in plan) is ("mail" not in str(condition))


def test_results_do_not_depend_on_indexes(ruled):
    """The verdict of the rules is the same with and without."""
    before = actual(ruled, *everything_wrong(ruled))
    ruled.indexes.ensure()
    assert actual(ruled, *everything_wrong(ruled)) == before
    assert len(before) == 4
