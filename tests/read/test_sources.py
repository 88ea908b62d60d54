"""Tables of a snapshot that are not in memory are wanted through their indexes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.read import sources

SCHEMA = "node Person { name: String @key }"


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["p2", "p0", "p2"], [True, True, True]),
        (["p2", "nobody", "p2", "p1", "gone"], [True, False, True, True, False]),
        (["nobody"], [False]),
    ],
)
def test_nodes_that_do_not_exist_are_recognised(
    tmp_path, monkeypatch, is_indexed, wanted, expected
):
    monkeypatch.setattr(sources, "_SMALL", 0)
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        names = ["p0", "p1", "p2", "gone"]
        graph.load([{"type": "Person", "data": {"name": name}} for name in names])
        if is_indexed:
            graph.maintenance.optimize()
        graph.mutate('query q() { delete Person where name = "gone" }')
        handle = graph._handle
        pin = handle.store.manifest(None).current().pin("node:Person")
        person = handle.check().catalog.node_types["Person"]
        nodes = sources.NodeSource(person, pin, handle.store, handle.topology)
        numbers = nodes.ids.numbers(pa.array(wanted))

        assert nodes.present(numbers.astype(np.int32)).tolist() == expected
        assert nodes.cached_index() is None
