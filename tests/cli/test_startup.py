"""What a command loads before it works: start-up is paid at every call. See bench/startup.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph import Graph
from tests.client.stub import stub_server

LOADED = """
import sys
import omnigraph.cli
code = omnigraph.cli.main({arguments!r})
print()
names = [name for name in sys.modules if "." not in name or name.startswith("omnigraph.")]
print("loaded", *sorted(names))
sys.exit(code)
"""
HEAVY = {
    "cedarpy",
    "lance",
    "numpy",
    "obstore",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "yaml",
    "msgspec",
}


def loaded(arguments, folder) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(arguments=list(arguments))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup")
    with Graph.init(folder / "g.omni", "node Person { name: String @key }") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ana"}}])
    (folder / "s.pg").write_text("node Person {\n  name: String @key\n}\n", "utf-8")
    return folder


def test_the_version_is_answered_by_almost_nothing(folder):
    actual = loaded(["version"], folder)
    assert {name for name in actual if name.startswith("omnigraph.")} == {
        "omnigraph.cli",
        "omnigraph.cli.about",
    }
    assert actual & {"argparse", "dataclasses", "inspect", "json", "typing", *HEAVY} == set()


@pytest.mark.parametrize(
    "arguments", [["fmt", "--check", "s.pg"], ["lint", "--schema", "s.pg"], ["--help"]]
)
def test_commands_without_a_graph_load_no_library(folder, arguments):
    assert loaded(arguments, folder) & HEAVY == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "q"],
        ["query", "-e", "query q() { match { $p: P } return { $p } }", "--format", "csv"],
        ["mutate", "m"],
        ["branch", "list"],
        ["commit", "list"],
        ["load", "--data", "d.jsonl", "--mode", "merge"],
        ["schema", "show"],
    ],
)
def test_a_command_through_a_server_loads_no_library(folder, arguments):
    (folder / "d.jsonl").write_text("{}\n", "utf-8")
    read = {"query_name": "q", "target": {"branch": "main"}, "row_count": 0, "rows": []}
    change = {"branch": "main", "query_name": "m", "affected_nodes": 0, "affected_edges": 0}
    with stub_server() as server:
        server.responses |= {
            "POST /graphs/kb/queries/q": read,
            "POST /graphs/kb/query": read,
            "POST /graphs/kb/queries/m": change,
            "GET /graphs/kb/branches": {"branches": ["main"]},
            "GET /graphs/kb/commits?branch=main": {"commits": []},
            "GET /graphs/kb/schema": {"schema_source": "node P { name: String @key }"},
            "POST /graphs/kb/load/ndjson?branch=main&mode=merge&indexes=true": {
                "branch": "main",
                "branch_created": False,
            },
        }
        actual = loaded([*arguments, "--server", server.url, "--graph", "kb"], folder)
    assert "http" in actual
    assert actual & HEAVY == set()


def test_a_query_loads_neither_writers_nor_upkeep_nor_spark(folder):
    query = "query q() { match { $p: Person } return { $p.name } }"
    actual = loaded(["query", "--store", "g.omni", "-e", query], folder)
    assert "lance" in actual
    assert (
        actual
        & {"cedarpy", "pandas", "pyspark", "py4j", "polars", "yaml", "duckdb", "networkx", "http"}
        == set()
    )
    rooms = ("spark", "merge", "evolve", "maintain", "write.load", "write.validate", "client")
    unwanted = {
        name
        for name in actual
        for room in rooms
        if name.startswith(f"omnigraph.{room}.") and name != "omnigraph.write.reentrancy"
    }
    assert unwanted == set()
    writers = {"commit.protocol", "commit.recovery", "commit.lifecycle", "write.mutation"}
    assert actual & {f"omnigraph.{name}" for name in writers} == set()
