"""How long it takes to compile a query and to lint a file, beside the bare reading of the text.

Run it with ``make bench`` or ``python bench/compile.py``. The floor is one pass of the tokeniser
over the same text: whatever parses it has to pay for that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.lexer import lex
from omnigraph.lang.query.lint import lint_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan import compile_query

NODE_TYPES = 12
EDGE_TYPES = 70
QUERIES = 300
GOALS_MS = {"compile": 2.0, "lint": 1000.0}


def schema_text() -> str:
    """A schema of the size that real projects have."""
    nodes = [
        f"node Thing{n} {{ slug: String @key  name: String @index  rank: I32?  kind: "
        f"enum(alpha, beta-1, gamma)  created: DateTime?  tags: [String]?  "
        f'text: String?  vec: Vector(64)? @embed("text") }}'
        for n in range(NODE_TYPES)
    ]
    edges = [
        f"edge Links{n}: Thing{n % NODE_TYPES} -> Thing{(n + 1) % NODE_TYPES} {{ since: Date? }}"
        for n in range(EDGE_TYPES)
    ]
    return "\n".join(nodes + edges)


def query_text(name: str, start: int = 0) -> str:
    """A query of 15 clauses: bindings, a chain, edge bindings, conditions, search, negation."""
    a, b, c, d = (f"Thing{(start + n) % NODE_TYPES}" for n in range(4))
    e = [f"links{(start + n) % NODE_TYPES}" for n in range(4)]
    return f"""
query {name}($slug: String, $since: DateTime, $kinds: [String], $q: String) {{
  match {{
    $a: {a} {{ slug: $slug }}
    $a {e[0]} $b
    $b: {b} {{ kind: "alpha" }}
    $b $link:{e[1]} $c
    $c: {c}
    $c {e[2]} $d
    $d: {d}
    $b.rank >= 3 and ($b.rank < 90 or $b.rank is null)
    $c.kind in $kinds
    $d.created >= $since
    $link.since is not null
    search($d.name, $q)
    $c.tags contains "graph"
    $d.name starts_with "Gra"
    not {{ $d {e[3]} $_ }}
  }}
  return {{ $a.slug, $b.name as via, $c.name, $d.name as found, $d.rank }}
  order {{ $d.rank desc, via }}
  limit 20
}}"""


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """The median time of a call, after a few to warm up."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def measure(catalog: Catalog) -> list[tuple[str, float, float, float]]:
    """Rows of (what, milliseconds, floor in milliseconds, goal in milliseconds)."""
    one = Source("one.gq", query_text("one"))
    many = Source("many.gq", "\n".join(query_text(f"q{n}", n) for n in range(QUERIES)))
    report = lint_queries(catalog, many, {"kind": "file", "path": "schema.pg"})
    assert report.status == "ok", report.results[0].error
    schema = {"kind": "file", "path": "schema.pg"}
    return [
        (
            "parse + check + lower, 15 clauses",
            median_ms(lambda: compile_query(catalog, one), 300),
            median_ms(lambda: lex(one), 300),
            GOALS_MS["compile"],
        ),
        (
            f"lint, {QUERIES} queries of 15 clauses",
            median_ms(lambda: lint_queries(catalog, many, schema), 5),
            median_ms(lambda: lex(many), 5),
            GOALS_MS["lint"],
        ),
    ]


def main() -> None:
    catalog = compile_schema(schema_text())
    print(f"{'what':40} {'median ms':>10} {'floor ms':>10} {'ratio':>7} {'goal ms':>9}")
    for what, spent, floor, target in measure(catalog):
        verdict = "ok" if spent < target else "MISSED"
        print(f"{what:40} {spent:10.3f} {floor:10.3f} {spent / floor:7.1f} {target:9.1f} {verdict}")


if __name__ == "__main__":
    main()
