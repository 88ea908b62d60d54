"""How many functions and modules of the package one warm call passes.

A reader who follows a call has to open each of them, so the numbers should fall. Run it with
``make bench`` or ``python bench/walks.py``; ``--list`` prints the functions in call order.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
INSERT = "query add($name: String) { insert Person { name: $name, age: 30 } }"
ONE_HOP = """
query friends($name: String) {
  match { $p: Person { name: $name }  $p knows $f }
  return { $f.name }
}
"""


def functions_passed(call: Callable[[], Any]) -> list[CodeType]:
    """The functions of the package that a call enters, in order, each once; in all threads."""
    entered: dict[CodeType, None] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/omnigraph/" in frame.f_code.co_filename:
            entered.setdefault(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [code for code in entered if code.co_name[0] != "<"]


def module_of(code: CodeType) -> str:
    return code.co_filename.rpartition("/omnigraph/")[2]


def merge(graph: Graph, number: int) -> Callable[[], Any]:
    """A three-way merge: both sides changed since the fork."""
    branch = f"b{number}"
    graph.branches.create(branch)
    graph.mutate(INSERT, params={"name": f"theirs {number}"}, branch=branch)
    graph.mutate(INSERT, params={"name": f"ours {number}"})
    if hasattr(graph, "merge"):
        return lambda: graph.merge(branch)
    return lambda: graph.merge(branch)  # before the verbs moved to the graph


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        Graph.init(Path(directory, "g.omni"), SCHEMA) as graph,
    ):
        people = [{"type": "Person", "data": {"name": f"p{i}"}} for i in range(9)]
        edges = [{"edge": "Knows", "from": f"p{i}", "to": f"p{i + 1}"} for i in range(8)]
        file = Path(directory, "more.ndjson")

        def load(number: int) -> Callable[[], Any]:
            file.write_text(f'{{"type": "Person", "data": {{"name": "n{number}"}}}}\n', "utf-8")
            return lambda: graph.load(file)

        calls: dict[str, Callable[[int], Callable[[], Any]]] = {
            "mutate": lambda n: lambda: graph.mutate(INSERT, params={"name": f"m{n}"}),
            "load": load,
            "query": lambda n: lambda: graph.query(ONE_HOP, params={"name": "p1"}).rows(),
            "merge": lambda n: merge(graph, n),
        }
        graph.load([*people, *edges])
        for name, prepare in calls.items():
            for warm_up in range(3):
                prepare(warm_up)()
            passed = functions_passed(prepare(3))
            modules = {module_of(code) for code in passed}
            print(f"{name:8} {len(passed):4} functions {len(modules):4} modules")
            if "--list" in sys.argv:
                for code in passed:
                    print(f"    {module_of(code)} {code.co_qualname}")


if __name__ == "__main__":
    main()
