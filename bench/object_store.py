"""What single writes and a warm query cost on S3: requests, requests in sequence, and time.

Run it with ``make bench`` or ``python bench/object_store.py``. The server is SeaweedFS on loopback,
behind a proxy that counts requests and adds 30 ms to each, as a network would. The time is on the
clock; most of it is the sum of the requests in sequence.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commit import folder

from omnigraph import Graph

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.s3.proxy import S3Proxy
from tests.s3.server import BUCKET, S3Server, options_for

LATENCY = 0.03
WARM_UP, ROUNDS = 5, 25
PEOPLE = 200
SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""
TEXT = """
query add($name: String) { insert Person { name: $name, age: 3 } }
query change($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query leave($name: String) { delete Person where name = $name }
query friends($name: String) {
  match { $p: Person { name: $name } $p knows $other }
  return { $other.name }
}
"""


@dataclass(frozen=True)
class Target:
    requests: int
    depth: int
    seconds: float | None = None


GOALS = {
    "insert": Target(16, 8, 0.35),
    "update": Target(16, 8),
    "delete": Target(24, 10),
    "query": Target(1, 1),
}


def operations(graph: Graph) -> dict[str, Callable[[int], object]]:
    return {
        "insert": lambda n: graph.mutate(TEXT, "add", {"name": f"new-{n}"}),
        "update": lambda n: graph.mutate(TEXT, "change", {"name": "p1", "age": n}),
        "delete": lambda n: graph.mutate(TEXT, "leave", {"name": f"p{3 * n + 5}"}),
        "query": lambda n: graph.query(TEXT, "friends", {"name": "p1"}).rows(),
    }


def fill(graph: Graph) -> None:
    people = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(PEOPLE)]
    edges = [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n + 1) % PEOPLE}"} for n in range(PEOPLE)
    ]
    homes = [{"edge": "LivesIn", "from": f"p{n}", "to": "c"} for n in range(PEOPLE)]
    graph.load([*people, {"type": "City", "data": {"name": "c"}}, *edges, *homes])


def measure(name: str, proxy: S3Proxy, operation: Callable[[int], object], rounds: int) -> bool:
    """Print the row of an operation; whether it meets its limit."""
    limit = GOALS[name]
    for number in range(WARM_UP):
        operation(number)
    requests, depths, seconds = [], [], []
    proxy.latency = LATENCY
    for number in range(WARM_UP, WARM_UP + rounds):
        proxy.reset()
        started = time.perf_counter()
        operation(number)
        seconds.append(time.perf_counter() - started)
        requests.append(len(proxy.log))
        depths.append(proxy.depth)
    proxy.latency = 0.0
    row = statistics.median(requests), min(depths), statistics.median(seconds)
    good = row[0] <= limit.requests and row[1] <= limit.depth
    good = good and (limit.seconds is None or row[2] <= limit.seconds)
    print(
        f"{name:8} {row[0]:9.0f} {limit.requests:5} {row[1]:9} {limit.depth:5} {row[2]:9.3f} "
        f"{limit.seconds or '':>5} {max(requests):8} {'' if good else '  missed'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with folder() as directory:
        server = S3Server(directory / "s3")
        try:
            with S3Proxy(server.port) as proxy:
                options = options_for(proxy.endpoint)
                uri = f"s3://{BUCKET}/g.omni"
                with Graph.init(uri, SCHEMA, storage_options=options) as graph:
                    fill(graph)
                    print("          requests  goal  sequence  goal   seconds  goal     most")
                    rows = [
                        measure(name, proxy, operation, rounds)
                        for name, operation in operations(graph).items()
                    ]
        finally:
            server.stop()
    return 0 if all(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
