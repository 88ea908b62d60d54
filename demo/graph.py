"""A graph from Python: write on a branch, look back, survive a killed writer, ask questions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from omnigraph import Graph, IntegrityError

KILLED = """
import os, signal, sys
import pyarrow as pa
from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, install

def die(point):
    if point is Failpoint.WRITE_BETWEEN_TABLES:
        os.kill(os.getpid(), signal.SIGKILL)

install(die)
Graph.open(sys.argv[1]).append({
    "Person": pa.table({"name": ["Eve"], "role": ["guest"]}),
    "Project": pa.table({"slug": ["ghost"], "title": ["Ghost"]}),
})
"""
SCHEMA = """
node Person { name: String @key  role: String? }
node Project { slug: String @key  title: String @index }
edge WorksOn: Person -> Project
"""
QUERIES = """
query colleagues($name: String) {
  match { $me: Person { name: $name }  $me worksOn $p  $other worksOn $p  $other.name != $name }
  return { $other.name, $p.title }
}
query idle() {
  match { $p: Person  not { $p worksOn $_ } }
  return { $p.name }
  order { $p.name }
}
query found($words: String) {
  match { $p: Project  search($p.title, $words)  $who worksOn $p }
  return { $p.title, count($who) as people }
}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder, "lab.omni"))
        with Graph.init(location, SCHEMA, actor="ada") as graph:
            show(graph)
        killed_writer(location)
        questions(location)


def show(graph: Graph) -> None:
    receipt = graph.append(
        {
            "Person": pa.table({"name": ["Ada", "Grace"], "role": ["lead", "engineer"]}),
            "Project": pa.table({"slug": ["engine"], "title": ["Analytical engine"]}),
            "WorksOn": pa.table({"src": ["Ada", "Grace"], "dst": ["engine", "engine"]}),
        }
    )
    assert receipt is not None
    print(f"one commit: {receipt.affected_nodes} nodes, {receipt.affected_edges} edges")

    graph.branches.create("review/hiring")
    graph.append({"Person": pa.table({"name": ["Alan"]})}, branch="review/hiring", actor="agent-7")
    for name in graph.branches.list():
        snapshot = graph.snapshot(name)
        owners = {key: state["branch"] for key, state in snapshot.tables.items()}
        print(f"{name}: {snapshot.count('Person')} people; tables owned by {owners}")

    try:
        graph.append({"WorksOn": pa.table({"src": ["Nobody"], "dst": ["engine"]})})
    except IntegrityError as error:
        print(f"refused: {error.message}")

    graph.tags.create("kick-off", receipt.commit_id)
    graph.append({"Person": pa.table({"name": ["Edsger"]})})
    print(
        f"main has {graph.snapshot().count('Person')} people, "
        f"the tag 'kick-off' {graph.snapshot(tag='kick-off').count('Person')}"
    )
    report = graph.indexes.ensure()
    print(f"{len(report.built)} indexes built, {len(report.pending)} pending")


def killed_writer(location: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, location], check=False)
    print(f"a writer was killed between two tables (exit {ended.returncode})")
    with Graph.open(location, mode="r") as graph:
        print(f"readers see {graph.snapshot().count('Person')} people")
    with Graph.open(location) as graph:
        for done in graph.recovered:
            print(f"opening to write: {done.kind.value}, {len(done.outcomes)} table restored")
        graph.append({"Person": pa.table({"name": ["Eve"]})})
        print(f"the next write works: {graph.snapshot().count('Person')} people")
        for commit in graph.commits()[:3]:
            print(f"  version {commit.version}: {commit.actor or 'nobody in particular'}")


def questions(location: str) -> None:
    with Graph.open(location, mode="r") as graph:
        print(graph.query(QUERIES, "colleagues", {"name": "Ada"}).rows())
        print(graph.query(QUERIES, "idle").rows())
        print(graph.query(QUERIES, "idle", at="kick-off").rows(), "when the tag was made")
        print(graph.query(QUERIES, "found", {"words": "engines"}).rows())


if __name__ == "__main__":
    main()
