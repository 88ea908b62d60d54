"""What a query would do, with the numbers behind each choice; and what it did, step by step."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import Cancelled, ParameterError, QueryTimeout
from omnigraph.read.limits import Cancel

SCHEMA = """\
node Person { name: String @key  age: I32?  bio: String? @index  v: Vector(2)? @index }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
COUNT = 40
FRIENDS = """query friends($name: String) {
  match {
    $a: Person { name: $name }
    $a knows{1,2} $b
    $b.age > 3
    not { $b worksAt $_ }
  }
  return { $b.name }
  order { $b.age desc }
  limit 2
}"""


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    """A ring of people, each of whom knows the next two; the first five work. All is indexed."""
    names = [f"p{n:02}" for n in range(COUNT)]
    location = tmp_path_factory.mktemp("explain") / "g.omni"
    with Graph.init(location, SCHEMA, durability="os") as graph:
        graph.load(
            {
                "Person": pa.table(
                    {
                        "name": names,
                        "age": pa.array(range(COUNT), pa.int32()),
                        "bio": ["a red fox" if n % 2 else "a dog" for n in range(COUNT)],
                        "v": pa.array([[n, 1] for n in range(COUNT)], pa.list_(pa.float32(), 2)),
                    }
                ),
                "Company": pa.table({"name": ["c"]}),
                "Knows": pa.table(
                    {"from": names * 2, "to": [*names[1:], names[0], *names[2:], *names[:2]]}
                ),
                "WorksAt": pa.table({"from": names[:5], "to": ["c"] * 5}),
            }
        )
        graph.indexes.ensure()
    return location


@pytest.fixture
def graph(location):
    """A handle that has not read anything yet."""
    with Graph.open(location, "r") as graph:
        yield graph


def notes_of(graph, match, tail="return { $a.name }", branch="main"):
    source = f"query q() {{ match {{ {match} }} {tail} }}"
    return graph.snapshot(branch).explain(source).data["expected"]


# -- explain --------------------------------------------------------------------------------------


def test_explain_names_the_strategies_with_their_numbers(graph):
    scan, walk, without = graph.snapshot().explain(FRIENDS).data["expected"]
    assert scan == {"step": "scan $a", "by": "key", "table_rows": COUNT, "rows": 1}
    assert walk["step"] == "expand $a to $b"
    assert (walk["strategy"], walk["reason"]) == ("indexed", "cheaper")
    assert (walk["frontier"], walk["hops"], walk["edges"]) == (1, 2, 2 * COUNT)
    # 2 hops from 1 of 40 starts over 80 edges, against 1.5 passes over all of them.
    assert (walk["indexed_cost"], walk["csr_cost"]) == (4.0, 120.0)
    assert without["step"] == "without"
    assert without["inner"][0]["edges"] == 5


def test_explain_shows_the_plan_and_what_is_expected_as_text(graph):
    text = str(graph.snapshot().explain(FRIENDS))
    assert text.startswith("read friends($name: String)\n  scan $a: Person\n")
    assert "  expand $a -[Knows 1..2]-> $b: Person\n    where $b.age > 3\n" in text
    assert "expected:\n  scan $a: by key, table_rows 40, rows 1\n" in text
    assert "strategy indexed, reason cheaper, frontier 1, hops 2, edges 80" in text


def test_explain_is_data_that_json_can_spell(graph):
    actual = json.loads(json.dumps(graph.snapshot().explain(FRIENDS).to_json()))
    assert (actual["kind"], actual["name"]) == ("read", "friends")
    assert [step["op"] for step in actual["pipeline"]] == ["node_scan", "expand", "anti_join"]
    assert len(actual["expected"]) == 3


def test_explain_needs_no_parameters_and_runs_nothing(graph):
    graph.snapshot().explain(FRIENDS)
    with pytest.raises(ParameterError):
        graph.snapshot().explain(FRIENDS, profile=True)
    (scan,) = notes_of(graph, "$a: Person")
    assert scan == {"step": "scan $a", "by": "storage", "table_rows": COUNT, "rows": COUNT}


def test_explain_knows_what_is_held(graph):
    graph.query("query q() { match { $a: Person $a.age > 1 $a knows{1,9} $b } return { $b.name } }")
    scan, walk = notes_of(graph, "$a: Person $a knows $b")
    assert scan["by"] == "memory"
    assert (walk["strategy"], walk["reason"], walk["csr_cost"]) == ("csr", "built already", 0.0)


@pytest.mark.parametrize(
    ("match", "tail", "search", "index"),
    [
        ('$a: Person search($a.bio, "fox")', "return { $a }", "search($a.bio)", "bio_text"),
        ('$a: Person fuzzy($a.bio, "fox")', "return { $a }", "fuzzy($a.bio)", "bio_text"),
        (
            "$a: Person $a knows $b",
            "return { $b } order { nearest($b.v, [1.0, 0.0]) } limit 1",
            "nearest($b.v)",
            "v_vector",
        ),
        ("$a: Person", 'return { bm25($a.bio, "fox") as s }', "bm25($a.bio)", "bio_text"),
        ('$a: Person search($a.name, "p01")', "return { $a }", "search($a.name)", "name_text"),
    ],
)
def test_explain_names_the_index_of_a_search(graph, match, tail, search, index):
    actual = [note for note in notes_of(graph, match, tail) if "search" in note]
    assert [(note["search"], note["index"], note["complete"]) for note in actual] == [
        (search, index, True)
    ]


def test_explain_says_when_an_index_is_missing_or_incomplete(tmp_path):
    match = '$a: Person search($a.bio, "fox") $a knows{1,2} $b'
    tail = 'return { $b.name } order { bm25($a.bio, "fox") }'
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append({"Person": pa.table({"name": ["a", "b"], "bio": ["fox", "dog"]})})
        graph.append({"Knows": pa.table({"src": ["a"], "dst": ["b"]})})

        def state():
            notes = notes_of(graph, match, tail)
            walk = next(note for note in notes if "strategy" in note)
            actual = [(n["index"], n.get("complete")) for n in notes if "search" in n]
            return walk["indexed_cost"], actual

        # Without an index, each hop reads every edge.
        assert state() == (2, [(None, None)] * 2)
        graph.indexes.ensure()
        cost, actual = state()
        assert cost < 2
        assert actual == [("bio_text", True)] * 2
        graph.append({"Person": pa.table({"name": ["c"], "bio": ["fox"]})})
        graph.append({"Knows": pa.table({"src": ["b"], "dst": ["c"]})})
        assert state() == (4, [("bio_text", False)] * 2)
        scores = [n for n in notes_of(graph, match, tail) if n.get("search") == "bm25($a.bio)"]
        assert scores[0]["scores"] == "by the statistics of the covered part"


def test_explain_of_a_branch(location):
    with Graph.open(location) as graph:
        graph.branches.create("more")
        graph.append({"Person": pa.table({"name": ["new"]})}, branch="more")
        (scan,) = notes_of(graph, "$a: Person", branch="more")
        assert scan["table_rows"] == COUNT + 1
        (scan,) = notes_of(graph, "$a: Person")
        assert scan["table_rows"] == COUNT


def test_explain_of_a_mutation_is_its_plan(graph):
    actual = graph.snapshot().explain('query q() { insert Person { name: "x" } }')
    assert actual.data["kind"] == "mutation"
    assert str(actual).startswith("mutation q()")


# -- profile --------------------------------------------------------------------------------------


def test_a_profile_reports_every_step(graph):
    actual = graph.snapshot().explain(FRIENDS, None, {"name": "p03"}, profile=True)
    steps = actual.data["profile"]
    assert [step["step"] for step in steps] == ["scan $a", "expand $a to $b", "without", "return"]
    # p03 reaches p04 to p07; p04 works, and two of the others are returned.
    assert [step["rows"] for step in steps] == [1, 4, 3, 2]
    for step in steps:
        assert step["milliseconds"] >= 0
        assert step["storage_operations"] >= 0
        assert step["bytes"] > 0
    assert steps[0]["notes"] == [{"by": "key"}]
    assert steps[1]["notes"][0]["strategy"] == "indexed"
    assert steps[1]["storage_operations"] >= 2
    assert actual.data["rows"] == 2
    assert actual.data["milliseconds"] > 0
    assert actual.data["peak_bytes"] >= 0
    total = sum(step["milliseconds"] for step in steps)
    assert total == pytest.approx(actual.data["milliseconds"], abs=0.01)


def test_a_profile_as_text(graph):
    text = str(graph.snapshot().explain(FRIENDS, None, {"name": "p03"}, profile=True))
    assert '    where $a.name = "p03"\n' in text
    assert "profile: 2 rows in " in text
    assert "\n  scan $a: 1 rows, " in text
    assert " bytes, 1 storage operations (by key)\n" in text


def test_a_warm_query_asks_the_storage_for_nothing(graph):
    for _ in range(3):
        actual = graph.snapshot().explain(FRIENDS, None, {"name": "p03"}, profile=True)
    assert sum(step["storage_operations"] for step in actual.data["profile"]) == 0
    assert actual.data["profile"][1]["notes"][0]["reason"] == "built already"


def test_a_profile_without_rows_still_names_its_steps(graph):
    actual = graph.snapshot().explain(FRIENDS, None, {"name": "nobody"}, profile=True)
    assert [(step["step"], step["rows"]) for step in actual.data["profile"]] == [
        ("scan $a", 0), ("expand $a to $b", 0), ("without", 0), ("return", 0)
    ]  # fmt: skip


def test_a_profile_reports_searches(location):
    with Graph.open(location) as graph:
        graph.branches.create("many")
        names = [f"q{n:03}" for n in range(100)]
        graph.append({"Person": pa.table({"name": names, "bio": ["fox"] * 100})}, branch="many")
        text = 'query q() { match { $a: Person search($a.bio, "fox") } return { $a.name } }'
        actual = graph.snapshot("many").explain(text, profile=True)
        assert {"search": "search($a.bio)", "hits": 120} in actual.data["profile"][0]["notes"]
        assert actual.data["rows"] == 120


def test_a_profile_keeps_the_limits(graph):
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        graph.snapshot().explain(FRIENDS, None, {"name": "p03"}, profile=True, cancel=cancel)
    with pytest.raises(QueryTimeout):
        graph.snapshot().explain(FRIENDS, None, {"name": "p03"}, profile=True, timeout=0)
