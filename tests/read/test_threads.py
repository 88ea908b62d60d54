"""One handle, many threads: every answer is right, whatever is written meanwhile."""

from __future__ import annotations

import threading

import pyarrow as pa

from omnigraph import Graph

SCHEMA = """\
node N { k: String @key  n: I64 }
edge E: N -> N
"""
ROWS = 300


def test_four_threads_on_one_handle(tmp_path):
    """Each asks for its own nodes; a writer adds others, so that versions change under them."""
    with Graph.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        keys = [f"{n:04}" for n in range(ROWS)]
        graph.load(
            {
                "N": pa.table({"k": keys, "n": range(ROWS)}),
                "E": pa.table({"from": keys, "to": [*keys[1:], keys[0]]}),
            }
        )
        wrong, requested = [], []
        hop = "query q($k: String) { match { $a: N { k: $k } $a e{1,3} $b } return { $b.n } }"
        count = "query q() { match { $a: N $a.n < 300 $a e $b } return { count($b) as c } }"

        def read(start):
            for number in range(start, ROWS, 8):
                actual = sorted(
                    r["b.n"] for r in graph.query(hop, None, {"k": keys[number]}).rows()
                )
                expected = sorted((number + hops) % ROWS for hops in (1, 2, 3))
                requested.append(number)
                if actual != expected:
                    wrong.append((number, actual))
                if graph.query(count).rows() != [{"c": ROWS}]:
                    wrong.append(number)

        readers = [threading.Thread(target=read, args=(n,)) for n in range(4)]
        for reader in readers:
            reader.start()
        for number in range(6):
            graph.append({"N": pa.table({"k": [f"new{number}"], "n": [1_000 + number]})})
            graph.append({"E": pa.table({"src": [f"new{number}"], "dst": ["0000"]})})
        for reader in readers:
            reader.join()
        assert wrong == []
        assert len(requested) == len([n for start in range(4) for n in range(start, ROWS, 8)])
        text = "query q() { match { $a: N $a e $b } return { count($b) as c } }"
        assert graph.query(text).rows() == [{"c": ROWS + 6}]
