"""What a new process pays to open a graph and to ask its first question.

The floor is a process that imports Lance, without pandas, and opens the same tables. The rows add
the import of OmniGraph, the opening, the compilation of the query and its answer. The graph has
100,000 people and 2,000,000 edges. Goal: at most 1.2 times the floor, in seconds of cpu. Runs
alternate, and the least of each counts: what else the machine does only ever adds. Compiled files
are kept, as after every installation. ``--small`` takes a hundredth of the graph.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from social.network import generate, tables

from omnigraph import Graph

PEOPLE, EDGES = 100_000, 2_000_000
ROUNDS = 15
TARGET = 1.2
SCHEMA = """
node Person { name: String @key  age: I32 }
edge Knows: Person -> Person
"""
LOOKUP = """
query lookup($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }
"""
TWO_HOPS = """
query two_hops($name: String) {
  match { $p: Person { name: $name }  $p knows $f  $f knows $g }
  return { count($g) as reached }
}
"""
# pandas comes along with pyarrow where it is installed; Lance does not need it.
NO_PANDAS = """
import sys
class NoPandas:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas)
"""
FLOOR = f"""{NO_PANDAS}
import lance
for path in sys.argv[1:]:
    lance.dataset(path).schema
"""
ASK = """
import sys
from omnigraph import Graph
with Graph.open(sys.argv[1], "r") as graph:
    for query in sys.argv[2:]:
        assert len(graph.query(query, params={"name": "person-000007"}).rows()) == 1
"""


def cpu(code: str, arguments: list[str], folder: str) -> float:
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def build(folder: str) -> tuple[str, list[str]]:
    """The graph, and the directories of its tables; its topology is stored by a first traversal."""
    split = 100 if "--small" in sys.argv else 1
    network = tables(generate(PEOPLE // split, EDGES // split))
    with Graph.init(Path(folder, "g.omni"), SCHEMA) as graph:
        graph.load({"Person": network["Person"].select(["name", "age"])})
        graph.load({"Knows": network["Knows"]}, mode="append")
        graph.maintenance.optimize()
        graph.query(TWO_HOPS, params={"name": "person-000007"}).rows()
        snapshot = graph.snapshot()
        paths = [snapshot.dataset(name).uri for name in ("Person", "Knows")]
        return graph.uri, [f"{graph.uri}/__manifest", *paths]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        uri, paths = build(folder)
        cases = {
            "import Lance, open the tables": (FLOOR, paths),
            "open + first lookup": (ASK, [uri, LOOKUP]),
            "open + first 2 hops": (ASK, [uri, TWO_HOPS]),
        }
        least = {name: float("inf") for name in cases}
        for code, arguments in cases.values():
            cpu(code, arguments, folder)
        for _ in range(ROUNDS):
            for name, (code, arguments) in cases.items():
                least[name] = min(least[name], cpu(code, arguments, folder))
    floor, *_ = least.values()
    missed = 0
    for name, seconds in least.items():
        ratio = seconds / floor
        missed += ratio > TARGET
        verdict = "floor" if seconds == floor else "MISSED" if ratio > TARGET else "ok"
        print(f"{name:32} {seconds * 1000:6.0f} ms of cpu {ratio:6.2f} (goal {TARGET}) {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
