"""What the soak graph holds, what must be true of every state of it, and what its logs say.

Every writer has keys of its own. A transaction writes both halves of pairs and the edge between
them, and the number of the transaction into ``Progress``, in one commit. So any state of the graph
can be judged by itself, and what it shows of a writer must be what the log of that writer says
about that number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.api.snapshot import GraphSnapshot

SCHEMA = """
node Left { key: String @key  writer: String @index  value: I64 @index  text: String @index }
node Right { key: String @key  value: I64 }
edge Pairs: Left -> Right
node Progress { writer: String @key  number: I64 }
node Counter { name: String @key  value: I64 }
node Draft { slug: String @key  batch: String @index  size: I64 }
node Note { name: String @key  value: I64 }
"""
QUERIES = """
query pairs() { match { $l: Left  $l pairs $r } return { $l.key, $l.value as a, $r.value as b } }
query of($w: String) { match { $l: Left { writer: $w } } return { $l.key } }
query above($v: I64) { match { $l: Left  $l.value > $v } return { $l.key } }
query word($t: String) { match { $l: Left search($l.text, $t) } return { $l.key } }
query totals() { match { $l: Left } return { $l.writer, count($l) as n, sum($l.value) as s } }
query drafts($b: String) { match { $d: Draft { batch: $b } } return { $d.slug } }

query add($writer: String, $key: String, $value: I64, $text: String) {
  insert Left { key: $key, writer: $writer, value: $value, text: $text }
  insert Right { key: $key, value: $value }
  insert Pairs { from: $key, to: $key }
  insert Progress { writer: $writer, number: $value }
}
query change($writer: String, $key: String, $value: I64, $text: String) {
  update Left set { value: $value, text: $text } where key = $key
  update Right set { value: $value } where key = $key
  insert Progress { writer: $writer, number: $value }
}
query drop($key: String) { delete Left where key = $key  delete Right where key = $key }
query count($old: I64, $new: I64) {
  update Counter set { value: $new } where name = "shared" and value = $old
}
query note($value: I64) { update Note set { value: $value } where name = "shared" }
query draft($slug: String, $batch: String, $size: I64) {
  insert Draft { slug: $slug, batch: $batch, size: $size }
}
query undraft($slug: String) { delete Draft where slug = $slug }
"""
WRITERS = ("w0", "w1", "w2", "w3")
BRANCHER = "brancher"
"""It writes on branches; what it wrote comes to main with a merge."""
SPACES = (*WRITERS, BRANCHER)
KEYS = 30
"""So many pairs each of them has at most: the graph does not grow with time."""
KEEP = 5
"""Seconds; a reader in another process may use a snapshot for so long."""
WORDS = ("amber", "birch", "cedar", "delta", "ember")

Pairs = dict[str, int]


def text_of(value: int) -> str:
    return f"{WORDS[value % len(WORDS)]} {value % 7}"


def begin(graph: Graph) -> None:
    """What there is before anybody starts."""
    records = [{"type": "Progress", "data": {"writer": item, "number": 0}} for item in SPACES]
    for kind in ("Counter", "Note"):
        records.append({"type": kind, "data": {"name": "shared", "value": 0}})
    graph.load(records)


def digest(pairs: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(sorted(pairs.items())).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Seen:
    """One state of the graph, read by scans."""

    left: dict[str, tuple[str, int, str]]
    right: Pairs
    edges: list[tuple[str, str]]
    progress: dict[str, int]
    counter: int
    note: int
    drafts: dict[str, tuple[str, int]]

    def of(self, writer: str) -> Pairs:
        return {key: value for key, (owner, value, _) in self.left.items() if owner == writer}


def look(snapshot: GraphSnapshot) -> Seen:
    def rows(kind: str, *columns: str) -> list[tuple[Any, ...]]:
        table = snapshot.read(kind, columns)
        actual = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
        assert len(actual) == snapshot.count(kind), f"{kind}: the manifest counts other rows"
        names = [row[0] for row in actual]
        assert kind == "Pairs" or len(set(names)) == len(names), f"{kind}: a key is there twice"
        return actual

    return Seen(
        {key: tuple(rest) for key, *rest in rows("Left", "key", "writer", "value", "text")},
        dict(rows("Right", "key", "value")),
        sorted(rows("Pairs", "src", "dst")),
        dict(rows("Progress", "writer", "number")),
        dict(rows("Counter", "name", "value"))["shared"],
        dict(rows("Note", "name", "value"))["shared"],
        {slug: tuple(rest) for slug, *rest in rows("Draft", "slug", "batch", "size")},
    )


def judge(seen: Seen, *, on_main: bool) -> None:
    """What is true of every state by itself."""
    values = {key: value for key, (_, value, _) in seen.left.items()}
    assert values == seen.right, f"halves of pairs differ: {values.items() ^ seen.right.items()}"
    ends = sorted((key, key) for key in values)
    assert seen.edges == ends, f"edges and pairs differ: {set(seen.edges) ^ set(ends)}"
    for key, (writer, value, text) in seen.left.items():
        assert key.startswith(f"{writer}-"), key
        assert text == text_of(value), (key, value, text)
        assert value <= seen.progress[writer], f"{key} is ahead of its writer"
    if on_main:
        batches: dict[str, int] = {}
        for batch, _ in seen.drafts.values():
            batches[batch] = batches.get(batch, 0) + 1
        for batch, size in seen.drafts.values():
            assert batches[batch] == size, f"batch {batch} was merged in part"


def compare(before: Seen, after: Seen, *, on_main: bool) -> None:
    """What is true of two states of a branch, the second one not older."""
    assert after.counter >= before.counter, "the counter went back"
    for writer, number in before.progress.items():
        assert after.progress[writer] >= number, f"{writer} went back"
    gone = before.drafts.keys() - after.drafts.keys()
    assert not (gone and on_main), f"drafts are gone: {gone}"


def ask(graph: Graph, snapshot: GraphSnapshot, seen: Seen, choice: int) -> None:
    """Queries, which use indexes, say what the scans say."""

    def rows(name: str, **params: object) -> list[tuple[Any, ...]]:
        actual = graph.query(QUERIES, name, params, snapshot=snapshot).rows()
        return sorted(tuple(row.values()) for row in actual)

    def keys(wanted: Any) -> list[tuple[str]]:
        return sorted((key,) for key, row in seen.left.items() if wanted(*row))

    writer, word = SPACES[choice % len(SPACES)], WORDS[choice % len(WORDS)]
    limit = seen.progress[writer] // 2
    assert rows("pairs") == sorted((key, v, v) for key, (_, v, _) in seen.left.items())
    assert rows("of", w=writer) == keys(lambda owner, *_: owner == writer)
    assert rows("above", v=limit) == keys(lambda _, value, __: value > limit)
    assert rows("word", t=word) == keys(lambda _, __, text: word in text.split())
    totals = {item: seen.of(item) for item in SPACES if seen.of(item)}
    assert rows("totals") == sorted((w, len(p), float(sum(p.values()))) for w, p in totals.items())
    for batch in sorted({batch for batch, _ in seen.drafts.values()})[-1:]:
        slugs = sorted((slug,) for slug, (item, _) in seen.drafts.items() if item == batch)
        assert rows("drafts", b=batch) == slugs


# -- logs ------------------------------------------------------------------------------------------


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


@dataclass(slots=True)
class Story:
    """What one log says was acknowledged, in order."""

    pairs: Pairs = field(default_factory=dict)
    number: int = 0
    states: set[tuple[int, str]] = field(default_factory=set)
    """Every state of the key space that there was, by the number of its last transaction."""
    counted: int = 0
    drafts: dict[str, tuple[str, int]] = field(default_factory=dict)
    note: int = 0
    commits: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)

    def report(self, line: Mapping[str, Any]) -> None:
        self.commits += line.get("commits", ())
        for code, times in line.get("refused", {}).items():
            self.refused[code] = self.refused.get(code, 0) + times
        self.number = line.get("number", self.number)
        self.pairs |= line.get("put", {})
        for key in line.get("drop", ()):
            del self.pairs[key]
        self.states.add((self.number, digest(self.pairs)))
        self.counted += line.get("counted", 0)
        self.drafts |= {slug: tuple(rest) for slug, *rest in line.get("drafts", ())}
        self.note = line.get("note", self.note)


def story(path: Path) -> Story:
    reported = Story()
    reported.states.add((0, digest({})))
    for line in lines(path):
        reported.report(line)
    return reported
