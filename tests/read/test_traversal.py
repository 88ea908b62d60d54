"""Along edges: bounds, cycles, loops, both directions, bound edges, and what must not exist."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, QueryError
from omnigraph.read.sources import table_id
from omnigraph.topology.edges import EdgeIndex
from tests.read.conftest import SCHEMA as PEOPLE
from tests.read.conftest import ask, column

MODES = ["auto", "indexed", "csr"]
SCHEMA = """\
node Person { name: String @key  age: I32? }
node Company { name: String @key }
node Topic { name: String @key }
edge Knows: Person -> Person { since: I32?  weight: F64? }
edge Likes: Person -> Person
edge WorksAt: Person -> Company { role: String? }
edge About: Company -> Topic
edge Part: Topic -> Topic
"""
PERSONS = {"ann": 30, "bob": 25, "cat": 35, "dan": None, "eve": 41, "fay": 19}
KNOWS = [
    ("ann", "bob", 2010, 1.0),
    ("ann", "bob", 2012, 0.5),  # a second edge between the same two
    ("bob", "cat", 2015, 0.25),
    ("cat", "ann", 2020, None),  # closes a cycle
    ("cat", "dan", None, 2.0),
    ("dan", "dan", 2001, 4.0),  # a loop
]
LIKES = [("ann", "cat"), ("cat", "ann"), ("bob", "dan"), ("dan", "bob"), ("eve", "ann")]
# The id "ann" is that of a person, a company and a topic.
WORKS = [("ann", "ann", "boss"), ("bob", "ann", None), ("eve", "core", "boss")]
ABOUT = [("ann", "ann"), ("ann", "art"), ("core", "art")]
PART = [("art", "ann"), ("ann", "art")]


def fill(graph):
    def edges(rows, *names):
        columns = zip(*rows, strict=True)
        return pa.table(dict(zip(("from", "to", *names), map(list, columns), strict=True)))

    graph.load(
        {
            "Person": pa.table(
                {"name": [*PERSONS], "age": pa.array([*PERSONS.values()], pa.int32())}
            ),
            "Company": pa.table({"name": ["ann", "core", "void"]}),
            "Topic": pa.table({"name": ["ann", "art"]}),
            "Knows": edges(KNOWS, "since", "weight"),
            "Likes": edges(LIKES),
            "WorksAt": edges(WORKS, "role"),
            "About": edges(ABOUT),
            "Part": edges(PART),
        }
    )


@pytest.fixture(scope="module", params=MODES)
def graph(request, tmp_path_factory):
    """One graph, walked as the engine likes, by indexes only and in memory only."""
    location = tmp_path_factory.mktemp(f"traversal-{request.param}") / "g.omni"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", request.param)
        made = Graph.init(location, SCHEMA, durability="os")
    with made as graph:
        fill(graph)
        yield graph


def pairs(graph, text, params=None):
    """The rows of a query with two columns, sorted, repeated ones repeated."""
    return sorted(tuple(row.values()) for row in ask(graph, text, params))


# -- bounds, cycles, loops ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "bounds", "names"),
    [
        ("ann", "", ["bob"]),
        ("ann", "{1,1}", ["bob"]),
        ("ann", "{1,2}", ["bob", "cat"]),
        ("ann", "{1,3}", ["bob", "cat", "dan"]),
        ("ann", "{2,3}", ["cat", "dan"]),
        ("ann", "{2,2}", ["cat"]),
        ("ann", "{3,3}", ["dan"]),
        # The cycle ends where it began, and its start is not found again.
        ("ann", "{1,9}", ["bob", "cat", "dan"]),
        ("ann", "{4,9}", []),
        # A node is found at its shortest distance only.
        ("cat", "{1,9}", ["ann", "bob", "dan"]),
        ("cat", "{2,9}", ["bob"]),
        # The loop is found at the first hop, and never later.
        ("dan", "", ["dan"]),
        ("dan", "{1,5}", ["dan"]),
        ("dan", "{2,5}", []),
        ("eve", "{1,9}", []),
    ],
)
def test_bounds(graph, start, bounds, names):
    text = f"match {{ $a: Person {{ name: $x }} $a knows{bounds} $b }} return {{ $b.name }}"
    assert column(graph, text, {"x": ("String", start)}) == names


@pytest.mark.parametrize(
    ("start", "bounds", "names"),
    [
        ("bob", "", ["ann"]),
        ("bob", "{1,2}", ["ann", "cat"]),
        ("dan", "", ["cat", "dan"]),
        ("dan", "{1,3}", ["ann", "bob", "cat", "dan"]),
        ("dan", "{2,2}", ["bob"]),
    ],
)
def test_bounds_against_the_edges(graph, start, bounds, names):
    text = f"match {{ $a: Person {{ name: $x }} $b knows{bounds} $a }} return {{ $b.name }}"
    assert column(graph, text, {"x": ("String", start)}) == names


@pytest.mark.parametrize(
    ("start", "bounds", "names"),
    [
        ("ann", "", ["bob", "cat"]),
        ("ann", "{2,2}", ["dan"]),
        ("bob", "{1,2}", ["ann", "cat", "dan"]),
        ("dan", "", ["cat", "dan"]),
        ("dan", "{2,2}", ["ann", "bob"]),
        ("eve", "{1,3}", []),
    ],
)
def test_either_direction(graph, start, bounds, names):
    text = f"match {{ $a: Person {{ name: $x }} $a <knows>{bounds} $b }} return {{ $b.name }}"
    assert column(graph, text, {"x": ("String", start)}) == names


def test_parallel_edges_are_one_neighbour(graph):
    assert pairs(graph, "match { $a: Person $a knows $b } return { $a.name, $b.name }") == [
        ("ann", "bob"), ("bob", "cat"), ("cat", "ann"), ("cat", "dan"), ("dan", "dan")
    ]  # fmt: skip
    counted = "match { $a: Person $a knows $b } return { count($b) as n }"
    assert ask(graph, counted) == [{"n": 5}]


def test_bounds_must_be_whole(graph):
    for bounds in ("{1,}", "{3,1}", "{0,2}"):
        with pytest.raises(QueryError, match="T15"):
            ask(graph, f"match {{ $a: Person $a knows{bounds} $b }} return {{ $b }}")


# -- between two types ----------------------------------------------------------------------------


@pytest.mark.parametrize(("bounds", "names"), [("", ["ann"]), ("{1,2}", ["ann"]), ("{2,3}", [])])
def test_between_two_types_there_is_one_hop(graph, bounds, names):
    """Although the company is called like a person."""
    text = f'match {{ $p: Person {{ name: "ann" }} $p worksAt{bounds} $c }} return {{ $c.name }}'
    assert column(graph, text) == names


def test_equal_ids_of_different_types_never_mix(graph):
    text = """match { $p: Person { name: "ann" } $p worksAt $c $c about $t $t part $u }
              return { $c.name, $t.name, $u.name }"""
    assert sorted(tuple(row.values()) for row in ask(graph, text)) == [
        ("ann", "ann", "art"), ("ann", "art", "ann")
    ]  # fmt: skip
    assert column(graph, 'match { $t: Topic { name: "ann" } $t part $u } return { $u }') == ["art"]


def test_the_side_that_is_written_does_not_matter_between_two_types(graph):
    for clause in ("$p worksAt $c", "$c worksAt $p"):
        text = f'match {{ $c: Company {{ name: "ann" }} {clause} }} return {{ $p.name }}'
        assert column(graph, text) == ["ann", "bob"]


# -- patterns -------------------------------------------------------------------------------------


def test_conditions_on_the_far_end(graph):
    inline = "match { $p: Person $p worksAt $c $c: Company { name: $c0 } } return { $p.name }"
    assert column(graph, inline, {"c0": ("String", "ann")}) == ["ann", "bob"]
    assert column(graph, inline, {"c0": ("String", "void")}) == []
    assert column(graph, inline, {"c0": ("String", "nowhere")}) == []
    literal = 'match { $p: Person $p worksAt $c $c.name = "core" } return { $p.name }'
    assert column(graph, literal) == ["eve"]


def test_conditions_in_the_middle_and_at_both_ends(graph):
    text = """match { $a: Person $a knows $b $b: Person { age: 25 } $b knows $c $c.age > $a.age }
              return { $a.name, $b.name, $c.name }"""
    assert ask(graph, text) == [{"a.name": "ann", "b.name": "bob", "c.name": "cat"}]


def test_columns_of_several_variables_stay_aligned(graph):
    text = """match { $a: Person $a knows $b $b worksAt $c }
              return { $a.name, $a.age, $b.name, $b.age, $c.name }"""
    assert sorted(tuple(row.values()) for row in ask(graph, text)) == [
        ("ann", 30, "bob", 25, "ann"), ("cat", 35, "ann", 30, "ann")
    ]  # fmt: skip


def test_fan_out_is_a_product_for_each_source(graph):
    text = """match { $p: Person $p knows $f $p likes $l }
              return { $p.name, $f.name, $l.name }"""
    assert sorted(tuple(row.values()) for row in ask(graph, text)) == [
        ("ann", "bob", "cat"),
        ("bob", "cat", "dan"),
        ("cat", "ann", "ann"),
        ("cat", "dan", "ann"),
        ("dan", "dan", "bob"),
    ]


def test_anybody_multiplies_rows_and_has_no_name(graph):
    text = "match { $p: Person $p knows $_ } return { $p.name, count($p) as n } order { $p.name }"
    assert pairs(graph, text) == [("ann", 1), ("bob", 1), ("cat", 2), ("dan", 1)]
    assert column(graph, "match { $p: Person $p knows $_ $p likes $_ } return { $p.name }") == [
        "ann", "bob", "cat", "cat", "dan"
    ]  # fmt: skip
    with pytest.raises(QueryError):
        ask(graph, "match { $p: Person $p knows $_ } return { $_.name }")


def test_both_ends_bound_is_a_test(graph):
    text = "match { $a: Person $b: Person $a knows $b $b.age < 30 } return { $a.name, $b.name }"
    assert pairs(graph, text) == [("ann", "bob")]
    triangle = (
        "match { $a: Person $a knows $b $b knows $c $c knows $a } return { $a.name, $c.name }"
    )
    assert pairs(graph, triangle) == [
        ("ann", "cat"),
        ("bob", "ann"),
        ("cat", "bob"),
        ("dan", "dan"),
    ]
    both = "match { $a: Person $a likes $b $b likes $a } return { $a.name, $b.name }"
    assert pairs(graph, both) == [
        ("ann", "cat"), ("bob", "dan"), ("cat", "ann"), ("dan", "bob")
    ]  # fmt: skip
    two = (
        "match { $a: Person $a likes $b $b knows $a $a knows{1,2} $b } return { $a.name, $b.name }"
    )
    assert pairs(graph, two) == [("ann", "cat")]


def test_two_cycles_close_at_one_node(graph):
    text = """match { $a: Person $b: Person $a knows $b $a likes $c $b knows $c }
              return { $a.name, $b.name }"""
    assert pairs(graph, text) == [("ann", "bob"), ("bob", "cat")]


def test_bounds_between_bound_ends(graph):
    text = (
        "match { $a: Person $b: Person $a likes $b $a knows{2,3} $b } return { $a.name, $b.name }"
    )
    assert pairs(graph, text) == [("ann", "cat"), ("bob", "dan")]


def test_a_variable_joined_to_itself(graph):
    assert column(graph, "match { $a: Person $a knows $a } return { $a.name }") == ["dan"]
    assert column(graph, "match { $a: Person $a <knows> $a } return { $a.name }") == ["dan"]
    assert column(graph, "match { $a: Person $a likes{1,2} $a } return { $a.name }") == []


def test_a_pattern_without_a_binding_starts_where_its_edge_says(graph):
    assert pairs(graph, "match { $p worksAt $c } return { $p.name, $c.name }") == [
        ("ann", "ann"), ("bob", "ann"), ("eve", "core")
    ]  # fmt: skip


def test_clauses_come_in_any_order(graph):
    text = (
        'match { $c.name = "ann" $b worksAt $c $a knows $b $a: Person } return { $a.name, $b.name }'
    )
    assert pairs(graph, text) == [("ann", "bob"), ("cat", "ann")]


# -- edges that are bound -------------------------------------------------------------------------


def test_every_edge_is_a_row_when_it_is_bound(graph):
    text = "match { $a: Person $a $k:knows $b } return { $a.name, $b.name, $k.since }"
    rows = sorted(tuple(map(str, row.values())) for row in ask(graph, text))
    assert rows == sorted((a, b, str(since)) for a, b, since, _ in KNOWS)


def test_bound_edges_from_the_other_end_and_in_either_direction(graph):
    into = "match { $b: Person { name: $x } $a $k:knows $b } return { $a.name, $k.since }"
    assert pairs(graph, into, {"x": ("String", "bob")}) == [("ann", 2010), ("ann", 2012)]
    either = "match { $a: Person { name: $x } $a $k:<knows> $b } return { $b.name, $k.weight }"
    assert pairs(graph, either, {"x": ("String", "bob")}) == [
        ("ann", 0.5), ("ann", 1.0), ("cat", 0.25)
    ]  # fmt: skip
    assert pairs(graph, either, {"x": ("String", "dan")}) == [("cat", 2.0), ("dan", 4.0)]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("$k.since >= 2012", [("ann", "bob"), ("bob", "cat"), ("cat", "ann")]),
        ("$k.since is null", [("cat", "dan")]),
        ("$k.weight > 1 and $k.since < 2010", [("dan", "dan")]),
        ("$k.since < 2012 or $b.age > 30", [("ann", "bob"), ("bob", "cat"), ("dan", "dan")]),
        ("$a.age = 30 and not ($k.weight = 1.0)", [("ann", "bob")]),
    ],
)
def test_properties_of_edges_in_conditions(graph, condition, wanted):
    text = f"match {{ $a: Person $a $k:knows $b {condition} }} return {{ $a.name, $b.name }}"
    assert pairs(graph, text) == wanted


def test_edges_between_two_bound_ends(graph):
    text = """match { $a: Person $b: Person $a likes $b $a $k:<knows> $b $k.since > 2000 }
              return { $a.name, $k.since }"""
    assert pairs(graph, text) == [("ann", 2020), ("cat", 2020)]
    loop = "match { $a: Person $a $k:knows $a } return { $a.name, $k.weight }"
    assert pairs(graph, loop) == [("dan", 4.0)]


def test_properties_of_edges_in_order_groups_and_limits(graph):
    text = (
        "match { $a: Person $a $k:knows $b } return { $a.name, $k.weight } order { $k.weight desc }"
    )
    rows = [row["k.weight"] for row in ask(graph, f"{text} limit 3")]
    assert rows == [4.0, 2.0, 1.0]
    grouped = """match { $a: Person $a $k:knows $b }
                 return { $a.name, count($k) as n, sum($k.weight) as w, min($k.since) as s }
                 order { n desc, $a.name }"""
    assert [tuple(row.values()) for row in ask(graph, grouped)] == [
        ("ann", 2, 1.5, 2010), ("cat", 2, 2.0, 2020), ("bob", 1, 0.25, 2015), ("dan", 1, 4.0, 2001)
    ]  # fmt: skip
    everything = (
        "match { $a: Person $a $k:knows $b } return { count($k) as n, count($k.since) as s }"
    )
    assert ask(graph, everything) == [{"n": 6, "s": 5}]


def test_an_edge_itself_is_returned_as_its_id(graph):
    ids = set(graph.snapshot().read("Knows", ["id"])["id"].to_pylist())
    text = "match { $a: Person $a $k:knows $b } return { $k } order { $k.since }"
    actual = [row["k"] for row in ask(graph, text)]
    assert set(actual) == ids
    assert len(actual) == 6
    assert ask(graph, "match { $a: Person $a $k:knows $b } return { count(distinct $k) as n }") == [
        {"n": 6}
    ]


def test_two_bound_edges_in_a_row(graph):
    text = """match { $a: Person $a $k:knows $b $b $l:knows $c $k.since < $l.since }
              return { $k.since, $l.since }"""
    assert pairs(graph, text) == [(2010, 2015), (2012, 2015), (2015, 2020)]


def test_a_bound_edge_spans_one_hop(graph):
    with pytest.raises(QueryError, match="T23"):
        ask(graph, "match { $a: Person $a $k:knows{1,2} $b } return { $k }")


# -- what must not exist --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ("not { $p worksAt $_ }", ["cat", "dan", "fay"]),
        ("not { $c worksAt $p }", ["cat", "dan", "fay"]),
        ("not { $c: Company $p worksAt $c }", ["cat", "dan", "fay"]),
        ("not { $c: Company $c worksAt $p }", ["cat", "dan", "fay"]),
        ("not { $p knows $_ }", ["eve", "fay"]),
        ("not { $_ knows $p }", ["eve", "fay"]),
        ("not { $p <knows> $_ }", ["eve", "fay"]),
        ("not { $p knows $p }", ["ann", "bob", "cat", "eve", "fay"]),
        ('not { $p worksAt $c $c.name = "core" }', ["ann", "bob", "cat", "dan", "fay"]),
        ('not { $p worksAt $c $c: Company { name: "ann" } }', ["cat", "dan", "eve", "fay"]),
        ("not { $p knows $f $f.age > $p.age }", ["ann", "cat", "dan", "eve", "fay"]),
        ("not { $p knows{2,3} $f }", ["dan", "eve", "fay"]),
        ("not { $p knows $f $f knows $p }", ["ann", "bob", "cat", "eve", "fay"]),
        ("not { $p $k:knows $f $k.since < 2012 }", ["bob", "cat", "eve", "fay"]),
        ("not { $p $k:knows $f $k.since is null }", ["ann", "bob", "dan", "eve", "fay"]),
        ("not { $q: Person $q.age > $p.age }", ["dan", "eve"]),
        ("not { $p.age > 20 }", ["dan", "fay"]),
        ("not { $p worksAt $c not { $c about $t } }", ["ann", "bob", "cat", "dan", "eve", "fay"]),
        ("not { $p likes $f not { $f likes $p } }", ["ann", "bob", "cat", "dan", "fay"]),
        ("not { $p.name is not null not { $p knows $_ } }", ["ann", "bob", "cat", "dan"]),
        ("not { $p worksAt $_ } not { $p likes $_ }", ["fay"]),
        ("not { $p knows $f $p likes $l $l.age > $f.age }", ["bob", "cat", "dan", "eve", "fay"]),
    ],
)
def test_negation(graph, block, names):
    text = f"match {{ $p: Person {block} }} return {{ $p.name }}"
    assert column(graph, text) == names


def test_a_block_must_mention_what_is_outside(graph):
    with pytest.raises(QueryError, match="T9"):
        column(graph, "match { $p: Person not { not { $p knows $_ } } } return { $p.name }")


def test_negation_of_a_walked_variable_and_of_several(graph):
    walked = "match { $a: Person $a knows $b not { $b worksAt $_ } } return { $a.name, $b.name }"
    assert pairs(graph, walked) == [("bob", "cat"), ("cat", "dan"), ("dan", "dan")]
    two = """match { $a: Person $a knows $b not { $a likes $c $b knows $c } }
             return { $a.name, $b.name }"""
    assert pairs(graph, two) == [("cat", "ann"), ("cat", "dan"), ("dan", "dan")]
    strangers = """match { $a: Person $b: Person $a.age > $b.age
                   not { $a <knows> $b } not { $a <likes> $b } }
                   return { $a.name, $b.name }"""
    assert pairs(graph, strangers) == [
        ("ann", "fay"),
        ("bob", "fay"),
        ("cat", "fay"),
        ("eve", "bob"),
        ("eve", "cat"),
        ("eve", "fay"),
    ]


def test_negation_of_a_bound_edge(graph):
    """The last edge between two people: there is no later one."""
    text = """match { $a: Person $a $k:knows $b not { $a $l:knows $b $l.since > $k.since } }
              return { $a.name, $k.since }"""
    rows = sorted(tuple(map(str, row.values())) for row in ask(graph, text))
    assert rows == [
        ("ann", "2012"),
        ("bob", "2015"),
        ("cat", "2020"),
        ("cat", "None"),
        ("dan", "2001"),
    ]


def test_negation_keeps_the_number_of_rows(graph):
    text = "match { $a: Person $a knows $_ not { $a worksAt $_ } } return { count($a) as n }"
    assert ask(graph, text) == [{"n": 3}]


def test_for_every_is_a_block_within_a_block(graph):
    """The companies where everybody knows somebody; a company without people is among them."""
    text = "match { $c: Company not { $p worksAt $c not { $p knows $_ } } } return { $c.name }"
    assert column(graph, text) == ["ann", "void"]


@pytest.mark.parametrize("condition", ["$p knows $_", "$p worksAt $c", "$p likes $f $f likes $p"])
def test_a_pattern_and_its_negation_partition_the_nodes(graph, condition):
    everybody = column(graph, "match { $p: Person } return { $p.name }")
    some = column(graph, f"match {{ $p: Person {condition} }} return distinct {{ $p.name }}")
    none = column(graph, f"match {{ $p: Person not {{ {condition} }} }} return {{ $p.name }}")
    assert sorted([*some, *none]) == everybody


# -- no edges, and edges that come later ----------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_without_edges(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append({"Person": pa.table({"name": ["a", "b"]})})
        assert ask(graph, "match { $p: Person $p knows{1,3} $f } return { $f }") == []
        assert ask(graph, "match { $p: Person $p $k:knows $f } return { $k }") == []
        assert column(graph, "match { $p: Person not { $p knows $_ } } return { $p }") == ["a", "b"]
        assert ask(graph, "match { $p: Person $p knows $f } return { count($f) as n }") == [
            {"n": 0}
        ]
        # And once everybody has one, nobody is left.
        graph.append({"Knows": pa.table({"src": ["a", "b"], "dst": ["b", "a"]})})
        assert column(graph, "match { $p: Person not { $p knows $_ } } return { $p }") == []


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_is_walked_at_once(tmp_path, monkeypatch, mode):
    """Appended edges, a new node with a new edge, deleted nodes and edges, on one warm handle."""
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    friends = 'match { $p: Person { name: "ann" } $p knows{1,3} $f } return { $f.name }'
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        fill(graph)
        graph.indexes.ensure()
        assert column(graph, friends) == ["bob", "cat", "dan"]
        graph.append({"Knows": pa.table({"src": ["dan", "ann"], "dst": ["eve", "fay"]})})
        assert column(graph, friends) == ["bob", "cat", "dan", "fay"]
        graph.mutate(
            """query q() {
                insert Person { name: "new" }
                insert Knows { from: "fay", to: "new" }
            }"""
        )
        assert column(graph, friends) == ["bob", "cat", "dan", "fay", "new"]
        graph.mutate('query q() { delete Person where name = "cat" }')
        assert column(graph, friends) == ["bob", "fay", "new"]
        graph.mutate('query q() { delete Knows where to = "fay" }')
        assert column(graph, friends) == ["bob"]
        graph.mutate('query q() { update Person set { age: 1 } where name = "bob" }')
        rows = 'match { $p: Person { name: "ann" } $p knows $f } return { $f.name, $f.age }'
        assert pairs(graph, rows) == [("bob", 1)]
        with Graph.open(graph.uri, "r") as cold:
            assert column(cold, friends) == ["bob"]


# -- which way is chosen --------------------------------------------------------------------------

HOP = "match { $a: Person { name: $x } $a knows $b } return { $b.name }"
PEOPLE_ROWS = 40


@pytest.fixture
def people(tmp_path):
    """A ring of people, each of whom knows the next two; nothing is held yet."""
    names = [f"p{n:02}" for n in range(PEOPLE_ROWS)]
    after = [*names[1:], names[0]]
    second = [*names[2:], *names[:2]]
    with Graph.init(tmp_path / "g.omni", PEOPLE, durability="os") as graph:
        graph.load(
            {
                "Person": pa.table({"name": names}),
                "Knows": pa.table({"from": names * 2, "to": after + second}),
            }
        )
        yield graph


def opened(graph):
    """A new handle, which holds nothing."""
    return Graph.open(graph.uri, "r")


def expected(graph, text, params=None):
    """What ``explain`` says about the walk of a query."""
    declared = ", ".join(f"${name}: String" for name in params or {})
    with opened(graph) as fresh:
        notes = fresh.snapshot().explain(f"query q({declared}) {{ {text} }}").data["expected"]
    return next(note for note in notes if "strategy" in note)


def walked(graph, text, params=None):
    """What ``profile`` says that the walk of a query did."""
    declared = ", ".join(f"${name}: String" for name in params or {})
    actual = graph.snapshot().explain(
        f"query q({declared}) {{ {text} }}", None, params, profile=True
    )
    notes = [note for step in actual.data["profile"] for note in step["notes"]]
    return next(note for note in notes if "strategy" in note)


def test_a_covered_index_answers_a_few_starts(people):
    people.indexes.ensure()
    existing = {"strategy": "indexed", "reason": "cheaper", "frontier": 1, "hops": 1}
    costs = {"edges": 2 * PEOPLE_ROWS, "indexed_cost": 2.0, "csr_cost": 3.0 * PEOPLE_ROWS}
    actual = expected(people, HOP, {"x": "p00"})
    assert actual == {**actual, **existing, **costs}
    with opened(people) as fresh:
        assert walked(fresh, HOP, {"x": "p00"}) == {**existing, **costs}


def test_coverage_decides_beyond_one_hop(people):
    """Without an index, or with edges outside of it, each hop reads the whole table."""
    one, two = HOP, HOP.replace("knows", "knows{1,2}")
    people.indexes.ensure()
    assert expected(people, two, {"x": "p00"})["strategy"] == "indexed"
    people.append({"Knows": pa.table({"src": ["p00"], "dst": ["p09"]})})
    edges = 2 * PEOPLE_ROWS + 1
    degraded = expected(people, one, {"x": "p00"})
    assert (degraded["strategy"], degraded["indexed_cost"]) == ("indexed", edges)
    degraded = expected(people, two, {"x": "p00"})
    assert (degraded["strategy"], degraded["indexed_cost"]) == ("csr", 2 * edges)
    assert column(people, one, {"x": ("String", "p00")}) == ["p01", "p02", "p09"]


def test_many_starts_are_walked_in_memory(people):
    people.indexes.ensure()
    actual = expected(people, "match { $a: Person $a knows{1,2} $b } return { $b.name }")
    assert (actual["strategy"], actual["frontier"]) == ("csr", PEOPLE_ROWS)
    assert actual["indexed_cost"] == 4.0 * PEOPLE_ROWS > actual["csr_cost"]


def test_between_two_types_hops_count_as_one(people):
    people.append({"Company": pa.table({"name": ["c"]})})
    people.append({"WorksAt": pa.table({"src": ["p00"], "dst": ["c"]})})
    text = "match { $a: Person { name: $x } $a worksAt{1,5} $b } return { $b.name }"
    assert expected(people, text, {"x": "p00"})["hops"] == 1


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("OMNIGRAPH_TRAVERSAL_MODE", "csr", "forced"),
        ("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "1", "many hops"),
        ("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "0", "many starts"),
    ],
)
def test_the_environment_bounds_the_index(people, monkeypatch, variable, value, reason):
    people.indexes.ensure()
    text = HOP.replace("knows", "knows{1,2}")
    assert expected(people, text, {"x": "p00"})["strategy"] == "indexed"
    monkeypatch.setenv(variable, value)
    actual = expected(people, text, {"x": "p00"})
    assert (actual["strategy"], actual["reason"]) == ("csr", reason)


def test_the_index_can_be_forced(people, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "indexed")
    text = "match { $a: Person $a knows{1,9} $b } return { $b.name }"
    actual = expected(people, text)
    assert (actual["strategy"], actual["reason"]) == ("indexed", "forced")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OMNIGRAPH_TRAVERSAL_MODE", "warp"), ("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "-1")],
)
def test_an_environment_that_makes_no_sense_is_refused(people, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=variable):
        opened(people)


def test_an_adjacency_that_is_held_is_used(people):
    people.indexes.ensure()
    people.query("query q() { match { $a: Person $a knows $b } return { count($b) as n } }")
    actual = walked(people, HOP, {"x": "p00"})
    assert (actual["strategy"], actual["reason"], actual["csr_cost"]) == (
        "csr",
        "built already",
        0.0,
    )


def test_only_the_edges_that_a_query_names_are_built(people, monkeypatch):
    """Also in a negation."""
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    people.append({"Company": pa.table({"name": ["c"]})})
    people.append({"WorksAt": pa.table({"src": ["p00"], "dst": ["c"]})})
    tables = people.snapshot().tables

    def kept(graph):
        return {key for key in tables if key.startswith("edge:") and _is_kept(graph, key)}

    with opened(people) as fresh:
        ask(fresh, "match { $a: Person $a knows $b } return { $b.name }")
        assert kept(fresh) == {"edge:Knows"}
    with opened(people) as fresh:
        ask(fresh, "match { $a: Person not { $a worksAt $_ } } return { $a.name }")
        assert kept(fresh) == {"edge:WorksAt"}
    with opened(people) as fresh:
        ask(fresh, "match { $a: Person } return { $a.name }")
        assert kept(fresh) == set()


def _is_kept(graph, key):
    pin = graph._handle.store.manifest(None).current().pin(key)
    return graph._handle.topology.get(table_id(pin), EdgeIndex) is not None
