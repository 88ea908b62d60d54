"""Vector indexes: their parameters, when they are rebuilt, and what they find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph import Graph, MaintenancePolicy
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import InputError, NotFound, ReadOnly, SchemaError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.maintain.optimize.indexes import declared_indexes
from omnigraph.maintain.optimize.run import OptimizeJob
from omnigraph.maintain.optimize.vector_indexes import (
    choose_index,
    declared_vector_index,
    measure_recall,
    partitions_for,
)
from omnigraph.storage.tables.types import IndexKind
from tests.commit.world import at

pytestmark = pytest.mark.rotates(3)

SIZE = 8
ROWS = 6000
NEAR = """
query near($v: Vector(8)) {
  match { $d: Doc }
  return { $d.slug as slug, nearest($d.vec, $v) as far }
  order { nearest($d.vec, $v), $d.slug }
  limit 10
}
query near_blue($v: Vector(8)) {
  match { $d: Doc { colour: "blue" } }
  return { $d.slug as slug }
  order { nearest($d.vec, $v), $d.slug }
  limit 10
}
"""


def schema(annotation=""):
    return (
        "node Doc { slug: String @key  colour: String?  "
        f"vec: Vector({SIZE})? @index {annotation} }}"
    )


def vectors(count, seed=0):
    """Points in a few clouds."""
    random = np.random.default_rng(seed)
    clouds = random.normal(size=(20, SIZE))
    actual = clouds[random.integers(0, 20, count)] + 0.5 * random.normal(size=(count, SIZE))
    return actual.astype(np.float32)


def docs(start, actual):
    column = pa.FixedSizeListArray.from_arrays(pa.array(actual.ravel()), SIZE)
    slugs = [f"d{number:05}" for number in range(start, start + len(actual))]
    colours = ["blue" if number % 1000 == 0 else "red" for number in range(len(actual))]
    return {"Doc": pa.table({"slug": slugs, "colour": colours, "vec": column})}


def make(folder, annotation="", count=ROWS):
    graph = Graph.init(folder / "g.omni", schema(annotation), durability="os")
    graph.append(docs(0, vectors(count)))
    return graph


def requested(graph, query="near", branch="main"):
    return [
        graph.query(NEAR, query, {"v": vector.tolist()}, branch=branch).rows()
        for vector in vectors(ROWS)[::1500]
    ]


def state(graph, **options):
    (actual,) = [s for s in graph.indexes.status(**options).indexes if s.column == "vec"]
    return actual


def split(actual, truth):
    """How many of the rows that are near were found."""
    slugs = [[{row["slug"] for row in rows} for rows in item] for item in (actual, truth)]
    return np.mean([len(a & b) / len(b) for a, b in zip(*slugs, strict=True)])


# -- the choice -------------------------------------------------------------------------------


def spec_of(annotation, size=768):
    text = f"node D {{ k: String @key  v: Vector({size}) @index {annotation} }}"
    return declared_vector_index(compile_schema(text, is_new=True).node("D").properties["v"])


@pytest.mark.parametrize(
    ("annotation", "rows", "method", "partitions", "sub_vectors"),
    [
        ("", 10, "IVF_FLAT", 1, None),
        ("", 80_000, "IVF_FLAT", 1, None),
        ("", 1_000_000, "IVF_FLAT", 46, None),
        ('@vector("l2", partitions=100)', 1_000_000, "IVF_FLAT", 100, None),
        ('@vector("l2", partitions=100)', 2560, "IVF_FLAT", 10, None),
        ('@vector("cosine", method="ivf_sq")', 4095, "IVF_FLAT", 1, None),
        ('@vector("cosine", method="ivf_sq")', 4096, "IVF_SQ", 1, None),
        ('@vector("cosine", method="ivf_sq")', 1_000_000, "IVF_SQ", 244, None),
        ('@vector("cosine", method="ivf_pq")', 1_000_000, "IVF_PQ", 244, 96),
        ('@vector("cosine", method="ivf_pq", sub_vectors=48)', 5000, "IVF_PQ", 1, 48),
        ('@vector("cosine", method="IVF_SQ")', 10**9, "IVF_SQ", 4096, None),
    ],
)
def test_the_parameters_follow_from_rows_size_and_schema(
    annotation, rows, method, partitions, sub_vectors
):
    spec = spec_of(annotation)
    choice = choose_index(spec, rows)
    actual = choice.spec
    assert (actual.method, actual.partitions, actual.sub_vectors) == (
        method,
        partitions,
        sub_vectors,
    )
    assert choice == choose_index(spec, rows)
    assert choice.why


def test_nothing_is_approximate_unless_the_schema_asks_for_it():
    for rows in (1, 10**4, 10**7, 10**9):
        assert choose_index(spec_of(""), rows).spec.is_exact
        assert choose_index(spec_of('@vector("dot", partitions=64)'), rows).spec.is_exact
    for asks in ('@vector("dot", method="ivf_pq")', '@vector("dot", probes=8)'):
        assert not choose_index(spec_of(asks), 10**6).spec.is_exact


def test_codes_are_of_equal_pieces_whatever_the_size():
    for size in (1, 2, 7, 100, 384, 1536):
        spec = spec_of('@vector("cosine", method="ivf_pq")', size)
        assert size % choose_index(spec, 10**5).spec.sub_vectors == 0


def test_a_small_segment_has_few_partitions():
    spec = choose_index(spec_of('@vector("l2", partitions=100)'), 10**6).spec
    assert [partitions_for(spec, rows) for rows in (10, 4096, 10**6)] == [1, 4, 100]


# -- the annotation ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "message", "hint"),
    [
        ('@vector("miles")', "unknown metric 'miles'", "cosine, l2, dot"),
        ('@vector("l2", method="hnsw")', "unknown method 'hnsw'", "ivf_flat, ivf_sq, ivf_pq"),
        ('@vector("l2", partition=4)', "unknown keyword 'partition='", "`partitions`"),
        ('@vector("l2", partitions=0)', "'partitions' is '0'", "1 to 65536"),
        ('@vector("l2", probes=1.5)', "'probes' is '1.5'", "whole number"),
        ('@vector("l2", partitions=4, probes=5)', "5 probes are more than its 4", None),
        ('@vector("l2", sub_vectors=4)', "only for method 'ivf_pq'", "leave it out"),
        ('@vector("l2", method="ivf_pq", sub_vectors=3)', "3 sub-vectors", "divisor of 8"),
    ],
)
def test_a_wrong_annotation_is_refused_where_it_stands(tmp_path, annotation, message, hint):
    text = schema(annotation)
    with pytest.raises(SchemaError) as caught:
        Graph.init(tmp_path / "g.omni", text)
    (actual,) = caught.value.diagnostics
    assert actual.code == "S034"
    assert message in actual.message
    assert text[actual.span.start :].startswith("@vector")
    assert actual.hint is None if hint is None else hint in actual.hint
    assert not (tmp_path / "g.omni").exists()
    with Graph.init(tmp_path / "other.omni", schema(), durability="os") as graph:
        for call in (graph.schema.plan, graph.schema.apply):
            with pytest.raises(SchemaError, match="S034"):
                call(text)


def test_a_vector_annotation_is_for_vectors_and_stands_once():
    for text in ('age: I32? @vector("l2")', 'v: Vector(2)? @vector("l2") @vector("dot")'):
        with pytest.raises(SchemaError, match=r"S034|S027"):
            compile_schema(f"node A {{ k: String @key  {text} }}", is_new=True)


def test_a_graph_of_another_program_may_say_anything_there():
    """It passes the annotation over; a graph that says so opens."""
    kind = compile_schema('node A { k: String @key  v: Vector(2)? @index @vector("x", y=1) }')
    (spec,) = [s for s in declared_indexes(kind.node("A")) if s.kind is IndexKind.VECTOR]
    assert (spec.metric, choose_index(spec, 10).spec.partitions) == ("cosine", 1)


# -- results ----------------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", ["", '@vector("l2", partitions=6)'])
def test_an_exact_index_changes_no_result_before_during_and_after(tmp_path, annotation):
    with make(tmp_path, annotation) as graph:
        before = requested(graph), requested(graph, "near_blue")
        graph.indexes.ensure()
        assert state(graph).parameters["partitions"] == (6 if annotation else 1)
        assert (requested(graph), requested(graph, "near_blue")) == before
        graph.append(docs(ROWS, vectors(2000, seed=1)))
        pinned = graph.snapshot()
        partly = requested(graph), requested(graph, "near_blue")
        assert state(graph).rows_outside == 2000
        graph.maintenance.optimize(engine="local")
        assert state(graph).rows_outside == 0
        assert (requested(graph), requested(graph, "near_blue")) == partly
        graph.indexes.rebuild("Doc")
        assert state(graph).segments == 1
        assert (requested(graph), requested(graph, "near_blue")) == partly
        assert [
            graph.query(NEAR, "near", {"v": v.tolist()}, snapshot=pinned).rows()
            for v in vectors(ROWS)[::1500]
        ] == partly[0]


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.INDEXES_AFTER_STAGE,
        Failpoint.WRITE_AFTER_TABLES,
        Failpoint.WRITE_AFTER_PUBLISH,
    ],
)
def test_whoever_reads_while_an_index_is_built_again_sees_the_same(tmp_path, point):
    with make(tmp_path, '@vector("l2", partitions=6)') as graph:
        graph.indexes.ensure()
        graph.append(docs(ROWS, vectors(500, seed=1)))
        before, seen = requested(graph), []
        with (
            Graph.open(graph.uri, "r") as reader,
            at(point, lambda: seen.append((requested(graph), requested(reader)))),
        ):
            graph.indexes.rebuild("Doc")
        assert seen
        assert all(item == (before, before) for item in seen)
        assert requested(graph) == before


APPROXIMATE = [
    '@vector("cosine", method="ivf_sq", partitions=6)',
    '@vector("l2", method="ivf_pq", partitions=4, sub_vectors=4)',
    '@vector("cosine", partitions=12, probes=4)',
]


@pytest.mark.parametrize("annotation", APPROXIMATE)
def test_what_the_schema_asks_for_finds_nearly_all(tmp_path, annotation):
    with make(tmp_path, annotation) as graph:
        truth = requested(graph)
        graph.indexes.ensure()
        actual = state(graph, measure_recall=True)
        assert actual.method == graph_method(graph)
        assert not actual.parameters["exact"]
        assert actual.recall >= 0.9
        assert split(requested(graph), truth) >= 0.9
        # What is found is measured exactly, and stands in the right order.
        for rows, right in zip(requested(graph), truth, strict=True):
            existing = {row["slug"]: row["far"] for row in right}
            assert all(existing.get(row["slug"], row["far"]) == row["far"] for row in rows)
            assert [row["far"] for row in rows] == sorted(row["far"] for row in rows)


def graph_method(graph):
    pin = graph._handle.store.manifest(None).current().pins["node:Doc"]
    dataset = lance.dataset(f"{graph.uri}/{pin.ref.path}", version=pin.version)
    return next(i.index_type for i in dataset.describe_indices() if i.name == "vec_vector")


@pytest.mark.parametrize("annotation", APPROXIMATE[:2])
def test_an_index_that_is_not_exact_is_sound_all_the_same(tmp_path, annotation):
    with make(tmp_path, annotation) as graph:
        graph.indexes.ensure()
        assert graph.maintenance.verify(checksums=False).is_sound
        graph.indexes.rebuild("node:Doc", "vec")
        assert state(graph).rebuild is None


def test_few_probes_still_find_enough_rows_under_a_filter(tmp_path):
    with make(tmp_path, '@vector("cosine", partitions=20, probes=1)') as graph:
        graph.indexes.ensure()
        blue = requested(graph, "near_blue")
        assert [len(rows) for rows in blue] == [6] * len(blue)


def test_an_index_that_finds_too_little_is_seen_to(tmp_path):
    with make(tmp_path, '@vector("cosine", partitions=20, probes=1)') as graph:
        graph.indexes.ensure()
        actual = state(graph, measure_recall=True)
        truth = split(requested(graph), exact(graph))
        assert actual.recall < 0.98
        assert abs(actual.recall - truth) < 0.25


def exact(graph):
    """The answers without an index, by plain arithmetic."""
    rows = graph.snapshot().read("Doc", ["slug", "vec"])
    matrix = np.array(rows["vec"].to_pylist(), np.float64)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    slugs = np.array(rows["slug"].to_pylist())
    matches = []
    for vector in vectors(ROWS)[::1500]:
        order = np.argsort(-(matrix @ vector), kind="stable")[:10]
        matches.append([{"slug": slug} for slug in slugs[order].tolist()])
    return matches


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_recall_of_an_exact_index_is_one(tmp_path, metric):
    annotation = f'@vector("{metric}", partitions=4)'
    with make(tmp_path, annotation, 2000) as graph:
        graph.append({"Doc": pa.table({"slug": ["null"]})})
        graph.indexes.ensure()
        assert state(graph, measure_recall=True).recall == 1.0


def test_recall_of_a_handful_of_rows_is_one(tmp_path):
    with make(tmp_path, count=3) as graph:
        graph.indexes.ensure()
        assert state(graph, measure_recall=True).recall == 1.0


# -- in parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", ['@vector("cosine", partitions=4)', *APPROXIMATE[:2]])
def test_an_index_built_in_shares_finds_what_one_built_at_once_finds(tmp_path, annotation):
    with Graph.init(tmp_path / "g.omni", schema(annotation), durability="os") as graph:
        for start in range(3):
            graph.append(docs(start * 2500, vectors(2500, seed=start)))
        truth = requested(graph)
        tasks = []

        class RecordingExecutor:
            def run(self, function, given, label=""):
                tasks.extend(given)
                return [function(task) for task in given]

        work = OptimizeJob(graph._handle.store, graph.catalog, None)
        actual = work.survey()
        # Three parts that are not put together, as if they were large.
        plans = [replace(item, plan=replace(item.plan, groups=())) for item in actual]
        parts = frozenset(part.number for part in plans[0].fragments)
        indexes = tuple(replace(index, fragments=parts) for index in plans[0].plan.indexes)
        plans[0] = replace(plans[0], plan=replace(plans[0].plan, indexes=indexes))
        report = work.run(plans, RecordingExecutor(), 2500)
        assert report.commit_id is not None
        divided = [s for s in tasks if getattr(s, "spec", None) and s.spec.column == "vec"]
        is_coded = "ivf_pq" in annotation
        assert len(divided) == (1 if is_coded else 3)
        assert state(graph).segments == 1
        assert state(graph).parameters["partitions"] > 1
        actual = requested(graph)
        assert actual == truth if state(graph).parameters["exact"] else split(actual, truth) >= 0.9


def test_new_rows_get_a_segment_and_are_found(tmp_path):
    annotation = '@vector("cosine", method="ivf_sq", partitions=4)'
    with make(tmp_path, annotation, 60_000) as graph:
        graph.indexes.ensure()
        graph.append(docs(60_000, vectors(1500, seed=5)))
        graph.maintenance.optimize(engine="local")
        actual = state(graph, measure_recall=True)
        assert (actual.rows, actual.rows_outside) == (61_500, 0)
        assert actual.recall >= 0.9


# -- built anew -------------------------------------------------------------------------------


@pytest.mark.parametrize("by_optimize", [False, True])
@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ('@vector("l2")', "it measures cosine, but l2 is declared"),
        ('@vector("cosine", method="ivf_sq")', "it is IVF_FLAT, but IVF_SQ is declared"),
    ],
)
def test_another_annotation_has_it_built_anew(tmp_path, annotation, reason, by_optimize):
    with make(tmp_path) as graph:
        graph.indexes.ensure()
        assert state(graph).rebuild is None
        graph.schema.apply(schema(annotation))
        assert state(graph).rebuild == reason
        truth = requested(graph)
        if by_optimize:
            report = graph.maintenance.optimize(engine="local", if_needed=True)
            assert report.table("node:Doc").reasons == (f"index vec_vector: {reason}",)
            assert report.table("node:Doc").indexed == (("vec", IndexKind.VECTOR),)
        else:
            assert graph.indexes.ensure().built == (("node:Doc", "vec", IndexKind.VECTOR),)
        assert (state(graph).rebuild, state(graph).segments) == (None, 1)
        assert split(requested(graph), truth) >= 0.9
        assert graph.indexes.ensure().built == ()
        assert graph.maintenance.optimize(engine="local").commit_id is None


def test_a_table_that_has_outgrown_its_index_gets_another(tmp_path):
    with make(tmp_path, '@vector("l2", partitions=16)', 1500) as graph:
        graph.indexes.ensure()
        assert state(graph).parameters["partitions"] == 5
        graph.append(docs(1500, vectors(2000, seed=1)))
        assert state(graph).rebuild is None
        graph.append(docs(3500, vectors(2500, seed=2)))
        assert state(graph).rebuild == "it was built for 1500 rows, and there are 6000 now"
        graph.indexes.ensure()
        assert state(graph).parameters["partitions"] == 16
        assert (state(graph).rebuild, state(graph).rows_outside) == (None, 0)


def test_an_index_in_segments_that_finds_too_little_is_built_anew_once(tmp_path):
    """As one segment it would come out the same: then it is only told."""
    with make(tmp_path, '@vector("cosine", partitions=20, probes=1)', 50_000) as graph:
        graph.indexes.ensure()
        graph.append(docs(50_000, vectors(8000, seed=7)))
        graph.maintenance.optimize(engine="local")
        assert state(graph).segments == 2
        assert graph.indexes.ensure(policy=MaintenancePolicy(recall=0.01)).built == ()
        strict = MaintenancePolicy(recall=1.0)
        assert graph.indexes.ensure(policy=strict).built == (("node:Doc", "vec", IndexKind.VECTOR),)
        assert state(graph).segments == 1
        assert graph.indexes.ensure(policy=strict).built == ()
        assert graph.maintenance.optimize(engine="local", policy=strict).commit_id is None


# -- on demand --------------------------------------------------------------------------------


def test_a_damaged_index_is_mended_by_building_it_again(tmp_path):
    with make(tmp_path, count=500) as graph:
        truth = requested_few(graph)
        graph.indexes.ensure()
        folder = (
            Path(graph.uri) / graph._handle.store.manifest(None).current().pins["node:Doc"].location
        )
        for file in sorted(folder.glob("_indices/*/*.*")):
            file.write_bytes(b"\0" * file.stat().st_size)
        graph.refresh()
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        assert "partitions" not in state(graph).parameters
        report = graph.indexes.rebuild("node:Doc", actor="ann")
        assert {column for _, column, _ in report.built} == {"id", "slug", "vec"}
        assert graph.commit(report.commit_id).actor == "ann"
        assert requested_few(graph) == truth
        assert state(graph).parameters["partitions"] == 1


def requested_few(graph):
    return [
        graph.query(NEAR, "near", {"v": vector.tolist()}).rows() for vector in vectors(500)[::100]
    ]


def test_only_the_indexes_of_one_column_are_built_again(tmp_path):
    with make(tmp_path, count=50) as graph:
        graph.indexes.ensure()
        before = {s.column: s.created_at for s in graph.indexes.status().indexes}
        report = graph.indexes.rebuild("Doc", "slug")
        assert report.built == (
            ("node:Doc", "slug", IndexKind.EQUALITY),
            ("node:Doc", "slug", IndexKind.TEXT),
        )
        after = {s.column: s.created_at for s in graph.indexes.status().indexes}
        assert after["vec"] == before["vec"]
        assert after["slug"] > before["slug"]
        assert report.seconds > 0
        assert report.to_json()["built"][0]["column"] == "slug"


def test_what_cannot_be_rebuilt_is_refused_by_name(tmp_path):
    with make(tmp_path, count=5) as graph:
        with pytest.raises(NotFound, match="'Dok'") as caught:
            graph.indexes.rebuild("Dok")
        assert "'Doc'" in caught.value.hint
        with pytest.raises(InputError, match="no index on 'colour'") as caught:
            graph.indexes.rebuild("Doc", "colour")
        assert caught.value.hint == "its indexes are on id, slug, vec"
        graph.branches.create("b")
        with pytest.raises(InputError, match="a table of main"):
            graph.indexes.rebuild("Doc", branch="b")
    with Graph.open(tmp_path / "g.omni", "r") as graph, pytest.raises(ReadOnly):
        graph.indexes.rebuild("Doc")


def test_an_empty_table_is_left_alone(tmp_path):
    with make(tmp_path, count=0) as graph:
        assert graph.indexes.rebuild("Doc").commit_id is None


def test_a_branch_rebuilds_what_it_owns(tmp_path):
    with make(tmp_path, count=50) as graph:
        graph.branches.create("b")
        graph.append(docs(50, vectors(10, seed=3)), branch="b")
        assert graph.indexes.rebuild("Doc", branch="b").commit_id is not None
        assert not state(graph, branch="b").is_pending
        assert state(graph).is_pending


def test_recall_is_asked_for_without_vectors(tmp_path):
    with Graph.init(tmp_path / "g.omni", schema(), durability="os") as graph:
        graph.append({"Doc": pa.table({"slug": ["a"]})})
        pin = graph._handle.store.manifest(None).current().pins["node:Doc"]
        spec = declared_vector_index(graph.catalog.node("Doc").properties["vec"])
        assert measure_recall(graph._handle.store.table(pin), spec) is None
