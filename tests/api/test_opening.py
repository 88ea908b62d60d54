"""What a new process loads to open a graph and to run one query. See bench/opening.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph import Graph

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
READ = """
import sys
from omnigraph import Graph
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }"
HOPS = '''query q($n: String) {
  match { $p: Person { name: $n }  $p knows $f  $f knows $g } return { count($g) as reached } }'''
with Graph.open(sys.argv[1], "r") as graph:
    for query in (LOOKUP, HOPS):
        assert len(graph.query(query, params={"n": "p1"}).rows()) == 1
print(*sys.modules)
"""
# The modules of these rooms that a read may load; those of other rooms that are listed in
# ANY_MODULE are about reading as a whole.
MAY_LOAD = {
    "api": "arguments blob_info engines gate graph handle merging queries query row_access "
    "snapshot snapshot_rows",
    "commit": "commits group_members history manifest manifests metadata names opening receipts "
    "rows schema schema.files schema.history snapshot store",
    "storage": "checksums durable executor first_read lance_format lance_format.addresses "
    "lance_format.files lance_format.manifests leases objects objects.ahead objects.derived "
    "objects.failures objects.local objects.paths objects.requests objects.store objects.traffic "
    "recorded_sums tables tables.branch_list tables.conditions tables.datasets "
    "tables.deferred_compute tables.deferred_pandas "
    "tables.failures tables.indexes tables.ledger_reader tables.table tables.types "
    "tables.wide_columns",
    "embed": "providers providers.config",
    "result": "columns files result",
}
ANY_MODULE = {"lang", "plan", "read", "topology"}
ANY_MODULE |= {"argument_checks", "errors", "escaping", "exhaustion", "logs", "progress"}
ANY_MODULE |= {"identity", "records", "representation", "settings"}
NEVER = {"omnigraph.read.searches", "omnigraph.read.search", "omnigraph.lang.schema.migrate"}
LIBRARIES = {
    "cedarpy",
    "pandas",
    "pydoc",
    "sysconfig",
    "polars",
    "duckdb",
    "pyspark",
    "msgspec",
    "yaml",
}
LIBRARIES |= {"obstore"}
LIBRARIES |= {
    "http",
    "obstore",
    "asyncio",
    "multiprocessing",
    "subprocess",
    "importlib.metadata",
    "email",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> set[str]:
    """The modules of a process that opened a graph, looked up a node and counted two hops."""
    uri = str(tmp_path_factory.mktemp("opening") / "g.omni")
    with Graph.init(uri, SCHEMA) as graph:
        people = [{"type": "Person", "data": {"name": f"p{i}"}} for i in range(4)]
        edges = [{"edge": "Knows", "from": f"p{i}", "to": f"p{i + 1}"} for i in range(3)]
        graph.load([*people, *edges])
    done = subprocess.run([sys.executable, "-c", READ, uri], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_read_loads_no_module_of_writers(loaded):
    unexpected = set()
    for name in loaded:
        top, _, rest = name.partition(".")
        room, _, module = rest.partition(".")
        if top != "omnigraph" or not room or room in ANY_MODULE:
            continue
        if room not in MAY_LOAD or (module and module not in MAY_LOAD[room].split()):
            unexpected.add(name)
    assert unexpected | (loaded & NEVER) == set()


def test_a_read_loads_no_library_that_it_does_not_need(loaded):
    assert loaded & LIBRARIES == set()


def test_the_number_of_modules_is_bounded(loaded):
    assert len([name for name in loaded if name.startswith("omnigraph")]) <= 177


# -- the garbage collector ----------------------------------------------------------------

COLLECTOR = """
import gc, sys
class Node: pass
nodes = [Node() for _ in range(int(sys.argv[3]))]
def cycle():
    node = Node(); node.self = node
    return node
mine = [[] for _ in range(int(sys.argv[1]))]
if sys.argv[2] == "disabled":
    gc.disable()
from omnigraph import Graph
Graph.open
frozen = gc.get_freeze_count()
import weakref
dead = weakref.ref(cycle())
gc.collect()
from omnigraph import MergeReport, Source, Graph
print(gc.isenabled(), frozen > 10_000, gc.get_freeze_count() <= frozen, dead() is None)
"""


@pytest.mark.parametrize(
    ("objects", "nodes", "collector", "is_enabled", "is_frozen"),
    [
        (0, 0, "enabled", True, True),
        (60_000, 0, "enabled", True, False),
        (0, 150, "enabled", True, False),
        (0, 0, "disabled", False, False),
    ],
)
def test_the_collector_skips_what_a_new_process_imports(
    objects, nodes, collector, is_enabled, is_frozen
):
    """Only in a process with hardly any object of its own, only once, and never later objects."""
    command = [sys.executable, "-c", COLLECTOR, str(objects), collector, str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(is_enabled), str(is_frozen), "True", "True"]


def test_objects_that_the_application_froze_stay_frozen():
    code = "import gc; gc.freeze(); n = gc.get_freeze_count()\nfrom omnigraph import Graph\n"
    code += "assert gc.get_freeze_count() >= n > 0"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


SEEN = """
import os, sys
class Seen:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
sys.meta_path.insert(0, Seen)
from omnigraph import Graph
Graph
print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
"""


@pytest.mark.parametrize("given", [None, "26"], ids=["not given", "given"])
def test_the_threads_of_openblas_do_not_spin_unless_the_application_says_so(monkeypatch, given):
    """The environment is as before when the import ends."""
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given is not None:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    done = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [given or "20", str(given)]
