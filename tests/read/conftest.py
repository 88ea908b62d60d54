"""The small graph that the tests of reading ask."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph

SCHEMA = """\
node Person { name: String @key  age: I32?  city: String? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""


@pytest.fixture
def people(tmp_path):
    """Alice knows Bob and Charlie, Bob knows Diana; Alice works at Acme, Bob at Globex."""
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(
            {
                "Person": pa.table(
                    {
                        "name": ["Alice", "Bob", "Charlie", "Diana"],
                        "age": pa.array([30, 25, 35, None], pa.int32()),
                        "city": ["Oslo", "Rome", "Oslo", None],
                    }
                ),
                "Company": pa.table({"name": ["Acme", "Globex"]}),
                "Knows": pa.table(
                    {
                        "from": ["Alice", "Alice", "Bob"],
                        "to": ["Bob", "Charlie", "Diana"],
                        "since": pa.array([2010, 2015, 2020], pa.int32()),
                    }
                ),
                "WorksAt": pa.table({"from": ["Alice", "Bob"], "to": ["Acme", "Globex"]}),
            }
        )
        yield graph


def ask(graph, text, params=None, **how):
    """The rows of a query without parameters, or with some that are declared."""
    declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in (params or {}).items())
    values = {name: value for name, (_, value) in (params or {}).items()}
    source = f"query q({declared}) {{ {text} }}"
    return graph.query(source, None, values, **how).rows()


def column(graph, text, params=None, **how):
    """The only column of a query, sorted."""
    rows = ask(graph, text, params, **how)
    return sorted((value for row in rows for value in row.values()), key=str)
