"""An actor sees exactly the graph that remains when all that it may not see is deleted.

Random views and random queries on graphs in every state: on branches and on old snapshots, by each
way of traversal, with tables in memory and on disk. The answer must be that of a naive evaluator to
the rows that remain, and that of another graph which has only those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph, QueryError
from omnigraph.lang.query import typed
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.plan.view import VIEW_VARIABLE
from tests.read.generate import ENUM, STORED, Question, literal, make_question, make_world
from tests.read.naive import Data, Row, answer, holds
from tests.read.test_agreement import MAKERS, change, compare, rows_of, traversal
from tests.read.test_search_queries import SCHEMA as SEARCHED
from tests.read.test_thresholds import VARIANTS
from tests.read.views import condition, make_view, viewed
from tests.read.world import NOW, check, read_back, tables
from tests.rotation import rotation
from tests.sampling import rotating

WORLDS, VIEWS, QUESTIONS = 20, 4, 20
SEARCH_WORLDS, SEARCHES = 10, 40
"""Together 2,000 questions: 1,600 about patterns and 400 that search."""
MODES = ("auto", "indexed", "csr")
Rules = dict[str, str | bool]


# -- views ----------------------------------------------------------------------------------------


def make_rules(random: Random, catalog: Catalog) -> Rules:
    """A rule for most of the types: a condition on their properties, or hidden."""
    rules: Rules = {}
    for kind in (*catalog.node_types.values(), *catalog.edge_types.values()):
        draw = random.random()
        if draw < 0.1:
            rules[kind.name] = False
        elif draw < 0.8:
            rules[kind.name] = _rule(random, kind)
    return rules


def _rule(random: Random, kind: NodeType | EdgeType) -> str:
    tests = [_test(random, kind) for _ in range(random.randint(1, 2))]
    return f" {random.choice(['and', 'or'])} ".join(f"({test})" for test in tests)


def _test(random: Random, kind: NodeType | EdgeType) -> str:
    properties = [p for p in kind.properties.values() if not p.type.is_list]
    lists = [p for p in kind.properties.values() if p.type.is_list]
    names = ", ".join(f'"{name}"' for name in random.sample("abcde", 3))
    if isinstance(kind, EdgeType) and (not properties or random.random() < 0.3):
        return f"{random.choice(['from', 'to'])} in [{names}]"
    if lists and random.random() < 0.2:
        return f"{random.choice(lists).name} is {random.choice(['', 'not '])}null"
    if isinstance(kind, NodeType) and random.random() < 0.4:
        return random.choice([f"name in [{names}]", f"not (name in [{names}])", 'name >= "c"'])
    prop = random.choice(properties)
    if prop.type.nullable and random.random() < 0.4:
        return f"{prop.name} is {random.choice(['', 'not '])}null"
    pool = ENUM if prop.type.enum_values else STORED[prop.type.scalar]
    # What a literal can hold: no number beyond 64 bits, none with an exponent.
    values = [v for v in pool if not isinstance(v, int | float) or abs(v) < 2**53 or v == 2**53]
    is_plain = not prop.type.enum_values and prop.type.scalar.value != "Bool"
    op = random.choice(["=", "!=", "<", ">="]) if is_plain else random.choice(["=", "!="])
    return f"{prop.name} {op} {literal(random.choice(values))}"


def visible_data(catalog: Catalog, data: Data, rules: Rules) -> Data:
    """What remains when hidden rows are deleted: by the naive evaluator, not by the engine."""

    def shown(name: str, rows: list[Row]) -> list[Row]:
        rule = rules.get(name, True)
        if isinstance(rule, bool):
            return rows if rule else []
        test = condition(catalog, name, rule)
        return [row for row in rows if holds(test, VIEW_VARIABLE, row)]

    nodes = {name: shown(name, rows) for name, rows in data.nodes.items()}
    ids = {name: {row["id"] for row in rows} for name, rows in nodes.items()}
    edges = {}
    for name, rows in data.edges.items():
        kind = catalog.edge_types[name]
        edges[name] = [
            row
            for row in shown(name, rows)
            if row["src"] in ids[kind.from_type] and row["dst"] in ids[kind.to_type]
        ]
    return Data(nodes, edges)


# -- patterns -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A state of a graph, how to read it, and its rows."""

    label: str
    where: dict[str, Any]
    data: Data


def moments(graph: Graph, random: Random) -> list[Moment]:
    """The newest state of main and of a branch, and an older one that main has left behind."""
    old = Moment("old", {"at": graph.commits()[0].commit_id}, read_back(graph))
    graph.branches.create("other")
    change(graph, random, "other")
    change(graph, random)
    newest = [
        Moment(branch, {"branch": branch}, read_back(graph, branch)) for branch in ("main", "other")
    ]
    return [*newest, old]


def agree(seen: Graph, remaining: Graph, moment: Moment, data: Data, question: Question) -> None:
    """Compare the answers of an actor with those of the graph that remains for it."""
    params = {**question.params, typed.NOW_PARAMETER: NOW}
    try:
        query = check(seen.catalog, question.text)
    except QueryError:
        with pytest.raises(QueryError):
            seen.query(question.text, "q", params, **moment.where)
        return
    expected = answer(query, data, convert_params(query.params, params))
    compare(query, rows_of(seen.query(question.text, "q", params, **moment.where)), expected)
    compare(query, rows_of(remaining.query(question.text, "q", params)), expected)
    prepared = seen.prepare(question.text, "q")
    compare(query, rows_of(prepared(params, **moment.where)), expected)


def _ask_world(number: int, location: Path) -> None:
    random = Random(f"views-{rotation()}-{number}")
    world = make_world(random, 8, 14)
    catalog = world.catalog
    maker = list(MAKERS.values())[number % len(MAKERS)]
    with Graph.init(location / "graph.omni", world.schema, durability="os") as graph:
        maker(graph, world, random)
        states = moments(graph, random)
        for view in range(VIEWS):
            rules, moment = make_rules(random, catalog), random.choice(states)
            seen = viewed(graph, make_view(catalog, rules))
            data = visible_data(catalog, moment.data, rules)
            where = location / f"{view}.omni"
            with Graph.init(where, world.schema, durability="os") as remaining:
                remaining.append(tables(catalog, data))
                for _ in range(QUESTIONS):
                    agree(seen, remaining, moment, data, make_question(random, catalog))


@pytest.mark.parametrize("number", rotating(range(WORLDS), 1, "views"))
def test_an_actor_gets_the_answers_of_the_graph_that_remains(number, tmp_path, monkeypatch):
    """Each world is read another way, and with other ideas of how many rows are many."""
    variant = list(VARIANTS.values())[number % len(VARIANTS)] if number % 2 else {}
    for (module, name), value in variant.items():
        monkeypatch.setattr(module, name, value)
    with traversal(MODES[number % len(MODES)]):
        _ask_world(number, tmp_path)


# -- searches -------------------------------------------------------------------------------------

WORDS = ("ant", "bee", "crow", "road", "roads", "learning", "learn", "count", "scent", "the")
RULES: tuple[Rules, ...] = (
    {"Doc": "year > 2000"},
    {"Doc": "year > 2000 or year is null"},
    {"Doc": 'title contains "road"'},
    {"Doc": 'slug >= "d3"'},
    {"Doc": "year <= 2004", "Cites": False},
    {"Doc": False},
    {"Author": 'name = "Ann"', "Wrote": "remark is not null"},
    {"Doc": "not (title is null)", "Wrote": 'from = "Ben"'},
)


def searched_rows(random: Random) -> dict[str, pa.Table]:
    slugs = [f"d{number:02}" for number in range(90)]

    def some(make: Any, present: float = 0.85) -> list[Any]:
        return [make() if random.random() < present else None for _ in slugs]

    def words() -> str:
        return " ".join(random.choices(WORDS, k=random.randint(0, 9)))

    def vector(size: int) -> list[float]:
        return [random.choice([-1.0, 0.5, 1.0, 2.0]) for _ in range(size)]

    wrote = [(random.choice(["Ann", "Ben"]), random.choice(slugs)) for _ in range(40)]
    cites = [(random.choice(slugs), random.choice(slugs)) for _ in range(80)]
    remarks = [words() if random.random() < 0.8 else None for _ in wrote]
    return {
        "Doc": pa.table(
            {
                "slug": slugs,
                "title": pa.array(some(words), pa.string()),
                "year": pa.array(some(lambda: random.randint(1998, 2010)), pa.int32()),
                "v": pa.array(some(lambda: vector(4)), pa.list_(pa.float32(), 4)),
                "flat": pa.array(some(lambda: vector(2)), pa.list_(pa.float32(), 2)),
            }
        ),
        "Author": pa.table({"name": ["Ann", "Ben"], "bio": [words(), None]}),
        "Wrote": pa.table(
            {
                "from": [a for a, _ in wrote],
                "to": [b for _, b in wrote],
                "remark": pa.array(remarks, pa.string()),
                "taste": pa.array([None] * len(wrote), pa.list_(pa.float32(), 2)),
            }
        ),
        "Cites": pa.table({"from": [a for a, _ in cites], "to": [b for _, b in cites]}),
    }


def make_search(random: Random) -> str:
    """A query that searches: every kind, on scanned and walked variables."""
    text = " ".join(random.sample(WORDS, random.randint(1, 3)))
    near, flat = "[0.5, 1.0, -1.0, 2.0]", "[0.5, 1.0]"
    pattern = random.choice(
        [
            "$d: Doc",
            "$d: Doc",
            "$d: Doc $d.year > 2002",
            "$a: Author $a wrote $d",
            '$s: Doc { slug: "d03" } $s cites{1,2} $d',
            "$d: Doc not { $d cites $e }",
        ]
    )
    matches = [f'{name}($d.title, "{text}")' for name in ("search", "match_text")]
    match = random.choice(["", "", *matches, f'fuzzy($d.title, "{text}", 1)'])
    bm25, vector = f'bm25($d.title, "{text}")', f"nearest($d.v, {near})"
    fused = [f"rrf({bm25}, {vector})", f"rrf({vector}, {bm25}, 2)"]
    order = random.choice([bm25, bm25, vector, vector, f"nearest($d.flat, {flat})", *fused, ""])
    limit = random.choice([1, 3, 5, 50])
    score = f", {order} as score" if order and random.random() < 0.8 else ""
    if not order:
        returned = random.choice(["count($d) as n", "$d.slug, $d.year"])
        return f"query q() {{ match {{ {pattern} {match} }} return {{ {returned} }} }}"
    tail = f"order {{ {order} }} limit {limit}"
    return f"query q() {{ match {{ {pattern} {match} }} return {{ $d.slug{score} }} {tail} }}"


def remaining_rows(graph: Graph, rules: Rules) -> dict[str, pa.Table]:
    """The rows that remain, by masks over the rows of the tables."""
    catalog, snapshot = graph.catalog, graph.snapshot()
    kept: dict[str, pa.Table] = {}
    kinds: list[Any] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    for kind in kinds:
        table, rule = snapshot.read(kind.name), rules.get(kind.name, True)
        rows = [
            row is not None
            and (rule if isinstance(rule, bool) else _holds(catalog, kind.name, rule, row))
            for row in table.to_pylist()
        ]
        if isinstance(kind, EdgeType):
            ends = [(kept[t]["id"].to_pylist()) for t in (kind.from_type, kind.to_type)]
            pairs = zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True)
            rows = [
                r and src in ends[0] and dst in ends[1]
                for r, (src, dst) in zip(rows, pairs, strict=True)
            ]
        kept[kind.name] = table.filter(pa.array(rows, pa.bool_()))
    return kept


def _holds(catalog: Catalog, name: str, rule: str, row: Row) -> bool:
    return holds(condition(catalog, name, rule), VIEW_VARIABLE, row)


@pytest.mark.parametrize("number", rotating(range(SEARCH_WORLDS), 1, "searched views"))
def test_searches_rank_as_if_there_were_only_visible_rows(number, tmp_path, monkeypatch):
    """With and without indexes: the other graph has none, so its statistics are exact."""
    random = Random(f"searched-{rotation()}-{number}")
    if number % 3 == 2:
        for (module, name), value in VARIANTS["nothing is held"].items():
            monkeypatch.setattr(module, name, value)
    with Graph.init(tmp_path / "graph.omni", SEARCHED, durability="os") as graph:
        graph.load(searched_rows(random))
        if number % 2:
            graph.indexes.ensure()
        for view in range(2):
            # The scores of a table that is seen whole are those of its index, rounded.
            fitting = [rules for rules in RULES if "Doc" in rules or not number % 2]
            rules = random.choice(fitting)
            seen = viewed(graph, make_view(graph.catalog, rules))
            with Graph.init(tmp_path / f"{view}.omni", SEARCHED, durability="os") as remaining:
                rows = remaining_rows(graph, rules)
                remaining.append({name: table for name, table in rows.items() if len(table)})
                for _ in range(SEARCHES // 2):
                    text = make_search(random)
                    if "order" in text:
                        assert seen.query(text).rows() == remaining.query(text).rows(), text
                    else:
                        assert _bag(seen, text) == _bag(remaining, text), text


def _bag(graph: Graph, text: str) -> list[str]:
    return sorted(map(repr, graph.query(text).rows()))
