"""Calls that a type checker must refuse, one for each line that says so."""

from __future__ import annotations

from omnigraph import Graph


def wrong(graph: Graph) -> None:
    graph.query(5)  # error: arg-type
    graph.query("q", commit="x")  # error: call-arg
    graph.load("x", "upsert")  # error: arg-type
    graph.load("x", progress=print)  # error: call-arg
    graph.export()  # error: attr-defined
    graph.branches.merge("x")  # error: attr-defined
    graph.snapshot().export(None, "parquet")  # error: call-overload
    graph.snapshot(at=5)  # error: arg-type
    graph.maintenance.optimize(engine="dask")  # error: arg-type
