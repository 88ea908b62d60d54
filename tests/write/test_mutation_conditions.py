"""Which rows a statement selects: the same ones, wherever they lie and whatever is done to them."""

from __future__ import annotations

import pytest

from tests.write.world import PEOPLE, ends, names, rows, run

CONDITIONS = {
    'name = "Ada"': ["Ada"],
    'name != "Ada"': ["Bob", "Cyd", "Dan"],
    "age > 20": ["Ada", "Dan"],
    "age >= 20 and age < 50": ["Ada", "Bob"],
    "age < 30 or score > 1.0": ["Ada", "Bob"],
    "not (age < 30)": ["Ada", "Dan"],
    "not (age < 30 or score < 1.0)": ["Ada"],
    "age is null": ["Cyd"],
    "age is not null and email is null": ["Bob"],
    'name in ["Ada", "Dan", "Zoe"]': ["Ada", "Dan"],
    'not (name in ["Ada", "Dan"])': ["Bob", "Cyd"],
    "age in [20, 50]": ["Bob", "Dan"],
    'email starts_with "a" or name starts_with "B"': ["Ada", "Bob"],
    'email contains "@"': ["Ada", "Dan"],
    'nickNames contains "bo"': ["Bob"],
    'not (nickNames contains "bo")': ["Cyd"],
    'status = "active" or (status is null and score > 0.1)': ["Ada", "Dan"],
    "age > 19.5 and age < 36.5": ["Ada", "Bob"],
    "age = 36.5": [],
    "age > 3000000000": [],
    "joined is null": ["Ada", "Bob", "Cyd", "Dan"],
    'joined < datetime("2024-01-01T00:00:00Z")': [],
}


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS.items(), ids=list(CONDITIONS))
def test_a_condition_selects_the_same_rows_everywhere(people, condition, expected):
    """Full boolean expressions, on rows that are there, on pending ones, and to delete."""
    first = run(people, f"update Person set {{ score: 99.0 }} where {condition}")
    assert first.affected_nodes == len(expected)
    assert [name for name, score in rows(people, "Person", "name", "score") if score == 99] == (
        expected
    )
    deleted = run(people, "delete Person where score = 99.0")
    assert deleted.affected_nodes == len(expected)
    assert names(people) == [n for n in ("Ada", "Bob", "Cyd", "Dan") if n not in expected]


def test_a_condition_on_pending_rows_selects_as_on_rows_that_are_there(people):
    """The same filter runs on both."""
    graph = people
    run(graph, 'delete Person where name != ""')
    inserts = "\n".join(line for line in PEOPLE.splitlines() if "Person {" in line)
    for condition, expected in CONDITIONS.items():
        receipt = run(graph, f"{inserts} update Person set {{ score: 99.0 }} where {condition}")
        changed = [name for name, score in rows(graph, "Person", "name", "score") if score == 99]
        assert (condition, changed) == (condition, expected)
        assert receipt.affected_nodes == 4 + len(expected)


EDGE_CONDITIONS = {
    'from = "Ada"': [("Ada", "Bob")],
    'to = "Ada" or to = "Dan"': [("Cyd", "Ada"), ("Dan", "Dan")],
    "from = to": [("Dan", "Dan")],
    "strength > 0.4 and strength < 0.95": [("Ada", "Bob"), ("Bob", "Cyd")],
    "strength is null": [("Cyd", "Ada")],
    'not (from = "Ada") and strength is not null': [("Bob", "Cyd"), ("Dan", "Dan")],
    'since <= date("2020-01-01")': [("Ada", "Bob")],
    'tone = "cold"': [("Dan", "Dan")],
    'from in ["Ada", "Bob"] and not (to = "Cyd")': [("Ada", "Bob")],
}


@pytest.mark.parametrize(
    ("condition", "expected"), EDGE_CONDITIONS.items(), ids=list(EDGE_CONDITIONS)
)
def test_conditions_on_edges_select_by_properties_and_ends(people, condition, expected):
    receipt = run(people, f"update Knows set {{ strength: 7.0 }} where {condition}")
    assert receipt.affected_edges == len(expected)
    actual = rows(people, "Knows", "src", "dst", "strength")
    assert [(src, dst) for src, dst, strength in actual if strength == 7] == expected
    assert run(people, "delete Knows where strength = 7.0").affected_edges == len(expected)
    assert len(ends(people, "Knows")) == 4 - len(expected)


def test_a_null_parameter_matches_nothing(people):
    for operator in ("=", "!=", "<"):
        receipt = run(people, f"delete Person where age {operator} $a", {}, declare="$a: I32?")
        assert (receipt.commit_id, receipt.affected_nodes) == (None, 0)
    assert len(names(people)) == 4
