"""The rows that the planner expects, and the orders that follow from statistics."""

from __future__ import annotations

import pytest

from omnigraph.lang.query.checked import Direction
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan import compile_query
from omnigraph.plan.estimator import estimate_plan
from omnigraph.plan.explain import step_name
from omnigraph.plan.nodes import ReadPlan
from omnigraph.plan.order import order_steps
from omnigraph.plan.statistics import (
    ColumnFacts,
    Degrees,
    TableFacts,
    TableStatistics,
    power_of_two,
)

CATALOG = compile_schema("""
node Person { name: String @key  age: I32?  city: String? }
node Company { name: String @key }
edge Knows: Person -> Person
edge Works: Person -> Company
edge Born: Person -> Company @card(0..1)
""")
NODES = {"Person": 1_000.0, "Company": 10.0}
EDGES = {"Knows": 20_000.0, "Works": 1_000.0, "Born": 1_000.0}
# Degrees of a hundred behind an edge, twenty on the mean.
SKEWED = Degrees((20.0, 20.0), (0.5, 0.5), (100.0, 40.0), 60.0, (512.0, 128.0))
FUNCTIONAL = Degrees((1.0, 100.0), (1.0, 1.0), (1.0, 100.0), None, (1.0, 128.0))


def statistics(**facts: TableFacts) -> TableStatistics:
    tables = {name: facts.get(name) for name in (*NODES, *EDGES)}
    return TableStatistics(CATALOG, NODES, EDGES, tables)


def plan_of(match: str, returned: str) -> ReadPlan:
    plan = compile_query(CATALOG, f"query q() {{ match {{ {match} }} return {{ {returned} }} }}")
    assert isinstance(plan, ReadPlan)
    return plan


def expected(match: str, returned: str, tables: TableStatistics) -> list[tuple[str, int]]:
    """The steps of a query in their order, with the expected rows."""
    plan = order_steps(plan_of(match, returned), tables)
    estimates = estimate_plan(plan, tables)
    return [
        (step_name(step), round(estimate.rows))
        for step, estimate in zip(plan.pipeline, estimates, strict=True)
    ]


PATH = '$a: Person { name: "x" } $a knows $b $b knows $c'


def test_without_facts_the_mean_of_the_tables_is_expected():
    assert expected(PATH, "$b.name, $c.name", statistics()) == [
        ("scan $a", 1),
        ("expand $a to $b", 20),
        ("expand $b to $c", 400),
    ]


def test_a_second_hop_is_larger_than_the_first():
    """A node that is reached by an edge has more edges than the mean."""
    tables = statistics(Knows=TableFacts({}, SKEWED))
    assert expected(PATH, "$b.name, $c.name", tables)[2] == ("expand $b to $c", 20 * 60)


def test_two_edges_of_one_node_are_not_independent():
    match = "$a knows $b $a knows $c $a.name != $b.name"
    tables = statistics(Knows=TableFacts({}, SKEWED))
    steps = expected(match, "$a.name, $b.name, $c.name", tables)
    assert steps[-1][1] == pytest.approx(20_000 * 100, rel=0.01)


def test_the_nodes_in_the_middle_of_an_undirected_path_have_the_degrees_of_both_directions():
    table = statistics(Knows=TableFacts({}, SKEWED)).edges("Knows")

    both = Direction.BOTH
    assert table.mean(both) == 40.0
    # (100 + 2 * 60 + 40) * 20 pairs of edges of a node, against 40 * 40.
    assert table.skew(both, both) == pytest.approx(260 * 20 / 1600)


@pytest.mark.parametrize(
    ("condition", "fraction"),
    [
        ('$a.city = "x"', 0.5 / 200),
        ('$a.city != "x"', 0.5 - 0.5 / 200),
        ("$a.city is null", 0.5),
        ("$a.city is not null", 0.5),
        ('$a.city in ["x", "y"]', 2 * 0.25 / 200),
        ("$a.age = 3", 0.1),
    ],
)
def test_conditions_on_measured_columns(condition, fraction):
    facts = TableFacts({"city": ColumnFacts(200.0, 0.5)})
    ((_, rows),) = expected(f"$a: Person {condition}", "$a.name", statistics(Person=facts))
    assert rows == pytest.approx(1_000 * fraction, abs=1)


def test_a_comparison_of_columns_passes_one_in_as_many_as_values():
    facts = TableFacts({"city": ColumnFacts(200.0, 0.0)})
    steps = expected("$a knows $b $a.city = $b.city", "$a.name, $b.name", statistics(Person=facts))
    assert steps[-1] == ("filter", 20_000 // 200)


def test_negations_counts_and_sums_show_what_is_inside_them():
    match = "$a knows $b $b knows $c $a.name != $c.name"
    plan = order_steps(plan_of(match, "count($a) as n"), statistics())
    (total,) = estimate_plan(plan, statistics())
    assert [step_name(term) for term in plan.pipeline[0].inner_steps()] == ["plus", "minus"]
    assert total.rows == 1.0
    assert [len(term.inner) for term in total.inner] == [
        len(term.inner_steps()) for term in plan.pipeline[0].inner_steps()
    ]


def test_a_functional_edge_is_followed_before_the_pattern_grows():
    """Of each person one company is looked up, and the condition on it is asked at once."""
    match = "$a knows $b $b knows $c $a works $w $b works $w $c works $w"
    tables = statistics(Knows=TableFacts({}, SKEWED), Works=TableFacts({}, FUNCTIONAL))
    names = [name for name, _ in expected(match, "$a.name, $b.name, $c.name", tables)]
    assert names[:2] in (
        ["scan $a", "expand $a to $w"],
        ["scan $b", "expand $b to $w"],
        ["scan $c", "expand $c to $w"],
        ["scan $w", "expand $w to $a"],
        ["scan $w", "expand $w to $b"],
        ["scan $w", "expand $w to $c"],
    )
    assert all(name.startswith("intersect") for name in names[2:])


def test_a_cardinality_of_one_is_known_without_statistics():

    table = statistics().edges("Born")
    assert table.most(Direction.OUT) == 1.0
    assert statistics().edges("Works").most(Direction.OUT) > 1.0


def test_rows_are_in_the_order_of_what_a_negation_follows():
    """The neighbours of the first variable lie beside each other in memory."""
    match = "$p works $c not { $p knows $q  $q works $c }"
    tables = statistics(Knows=TableFacts({}, SKEWED), Works=TableFacts({}, FUNCTIONAL))
    names = [name for name, _ in expected(match, "count($p) as n", tables)]
    assert names == ["scan $p", "expand $p to $c", "without"]


def test_statistics_are_equal_for_sizes_of_one_magnitude():
    def of(people: int) -> TableStatistics:
        def rows(key: str) -> int:
            return people if key == "node:Person" else 5

        return TableStatistics.of(CATALOG, ("Person",), ("Knows",), rows, lambda _: None)

    assert of(1_700) == of(1_800)
    assert hash(of(1_700)) == hash(of(1_800))
    assert of(1_700) != of(3_000)
    assert of(1_700).nodes("Person") == power_of_two(1_700)
