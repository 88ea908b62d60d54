"""Random writes with optimizes in between: every query says what it says without them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.maintain.optimize import plan as optimize_plan
from omnigraph.storage.tables import compaction

SCHEMA = """
node Doc { slug: String @key  title: String? @index  year: I32? @index  vec: Vector(2)? @index }
edge Cites: Doc -> Doc
"""
QUERIES = """
query all() { match { $d: Doc } return { $d.slug, $d.title, $d.year } order { $d.slug } }
query year($y: I32) { match { $d: Doc { year: $y } } return { $d.slug } order { $d.slug } }
query word($w: String) {
  match { $d: Doc search($d.title, $w) } return { $d.slug } order { $d.slug }
}
query near($v: Vector(2)) {
  match { $d: Doc } return { $d.slug } order { nearest($d.vec, $v), $d.slug } limit 3
}
query cited() {
  match { $a: Doc $a cites $b } return { $a.slug, $b.slug } order { $a.slug, $b.slug }
}
"""
WORDS = ("red", "green", "blue")
KEYS = st.integers(0, 15)
DOC = st.tuples(KEYS, st.sampled_from(WORDS), st.integers(0, 3))
STEP = st.one_of(
    st.tuples(st.just("load"), st.lists(DOC, min_size=1, max_size=6, unique_by=lambda d: d[0])),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("update"), st.tuples(KEYS, st.sampled_from(WORDS))),
    st.tuples(st.just("cite"), st.tuples(KEYS, KEYS)),
    st.tuples(st.just("optimize"), st.booleans()),
    st.tuples(st.just("ensure"), st.none()),
    st.tuples(st.just("rebuild"), st.sampled_from([None, "title", "year", "vec"])),
)


def apply(graph, step, is_kept_up):
    match step:
        case ("load", rows):
            columns = {
                "slug": [f"d{n}" for n, _, _ in rows],
                "title": [word for _, word, _ in rows],
                "year": pa.array([year for _, _, year in rows], pa.int32()),
                "vec": pa.array([[n + 1.0, year + 1.0] for n, _, year in rows]),
            }
            graph.load({"Doc": pa.table(columns)})
        case ("delete", number):
            graph.mutate(f'query q() {{ delete Doc where slug = "d{number}" }}')
        case ("update", (number, word)):
            graph.mutate(
                f'query q() {{ update Doc set {{ title: "{word}" }} where slug = "d{number}" }}'
            )
        case ("cite", (a, b)):
            snapshot = graph.snapshot()
            if all(snapshot.entity("Doc", f"d{n}") is not None for n in (a, b)):
                graph.append({"Cites": pa.table({"src": [f"d{a}"], "dst": [f"d{b}"]})})
        case ("optimize", large):
            if is_kept_up:
                # Segments are kept beside each other, or not.
                with patch.object(optimize_plan, "LARGE_SEGMENT", 4 if large else 10**6):
                    graph.maintenance.optimize()
                    assert graph.maintenance.optimize().commit_id is None
        case ("ensure", _):
            if is_kept_up:
                graph.indexes.ensure()
        case ("rebuild", column):
            if is_kept_up:
                graph.indexes.rebuild("Doc", column)


def responses(graph):
    def ask(name, **params):
        return graph.query(QUERIES, name, params).rows()

    return [
        ask("all"),
        ask("cited"),
        *(ask("year", y=year) for year in range(4)),
        *(ask("word", w=word) for word in WORDS),
        *(ask("near", v=[float(n), 2.0]) for n in (1, 8)),
    ]


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(STEP, min_size=3, max_size=14))
def test_optimizing_changes_no_answer(steps):
    with (
        tempfile.TemporaryDirectory() as folder,
        # Parts so small that some are full.
        patch.object(optimize_plan, "ROWS_PER_FRAGMENT", 5),
        patch.object(compaction, "ROWS_PER_FRAGMENT", 5),
        Graph.init(Path(folder, "kept.omni"), SCHEMA, durability="os") as kept,
        Graph.init(Path(folder, "left.omni"), SCHEMA, durability="os") as left,
    ):
        for step in [*steps, ("optimize", True), ("optimize", False)]:
            apply(kept, step, is_kept_up=True)
            apply(left, step, is_kept_up=False)
            assert responses(kept) == responses(left), step
