"""The counts of the LDBC Labelled Subgraph Query Benchmark, for clauses in any order."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph import Graph
from tests.rotation import rotation

ARCHIVE = Path(__file__).with_name("lsqb") / "sf0.003.tar.xz"
NODES = ("Country", "City", "Person", "Forum", "Post", "Comment", "Tag", "TagClass")
EDGES = {
    "City_isPartOf_Country": ("PartOf", "City", "Country"),
    "Person_isLocatedIn_City": ("LivesIn", "Person", "City"),
    "Forum_hasMember_Person": ("HasMember", "Forum", "Person"),
    "Forum_containerOf_Post": ("Contains", "Forum", "Post"),
    "Comment_replyOf_Post": ("ReplyOf", "Comment", "Post"),
    "Comment_hasTag_Tag": ("HasTag", "Comment", "Tag"),
    "Tag_hasType_TagClass": ("HasType", "Tag", "TagClass"),
    "Person_knows_Person": ("Knows", "Person", "Person"),
    "Comment_hasCreator_Person": ("CommentBy", "Comment", "Person"),
    "Post_hasCreator_Person": ("PostBy", "Post", "Person"),
    "Person_hasInterest_Tag": ("Interest", "Person", "Tag"),
}
SCHEMA = "\n".join(
    [
        *(f"node {name} {{ key: String @key }}" for name in NODES),
        *(f"edge {name}: {src} -> {dst}" for name, src, dst in EDGES.values()),
    ]
)
LIVE = "$a livesIn $x|$b livesIn $y|$c livesIn $z|$x partOf $k|$y partOf $k|$z partOf $k"
PATHS = "$a <knows> $b|$b <knows> $c|$c interest $t|$a.key != $c.key"
COUNTS = {
    "1": (
        "$x partOf $k|$p livesIn $x|$f hasMember $p|$f contains $o|$m replyOf $o|$m hasTag $t"
        "|$t hasType $y",
        20_608,
    ),
    "2": ("$a <knows> $b|$m commentBy $a|$m replyOf $o|$o postBy $b", 281),
    "3": (f"$a <knows> $b|$b <knows> $c|$a <knows> $c|{LIVE}", 0),
    "6": (PATHS, 33_201),
    "9": (f"{PATHS}|not {{ $a <knows> $c }}", 23_669),
}


def records() -> Iterator[dict[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:

        def rows(name: str) -> list[list[str]]:
            member = archive.extractfile(f"{name}.csv")
            assert member is not None
            return list(csv.reader(io.TextIOWrapper(member, "utf-8"), delimiter="|"))[1:]

        for name in NODES:
            yield from ({"type": name, "data": {"key": row[0]}} for row in rows(name))
        for name, (edge, _, _) in EDGES.items():
            yield from ({"edge": edge, "from": row[0], "to": row[1]} for row in rows(name))


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("lsqb") / "g.omni"
    with Graph.init(root, SCHEMA, durability="os") as graph:
        graph.load(list(records()))
        yield graph


def text_of(clauses: list[str]) -> str:
    """A query that counts the matches of a pattern."""
    counted = "$o" if any("$o" in clause for clause in clauses) else "$a"
    return f"query q() {{ match {{ {'  '.join(clauses)} }} return {{ count({counted}) as n }} }}"


@pytest.mark.parametrize("number", COUNTS)
def test_the_count_is_right_and_the_plan_the_same_in_any_order(graph, number):
    pattern, expected = COUNTS[number]
    clauses, random, texts = pattern.split("|"), Random(rotation()), []
    for _ in range(5):
        random.shuffle(clauses)
        clauses.sort(key=lambda clause: clause.startswith("not"))
        texts.append(text_of(clauses))
        assert graph.query(texts[-1]).rows() == [{"n": expected}]
    # The first query measures the tables that it uses, so the second may have another plan.
    plans = {str(graph.snapshot().explain(text)).partition("expected:")[0] for text in texts}
    assert len(plans) == 1, "\n".join(plans)
