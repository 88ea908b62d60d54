"""One name in several negated blocks is several variables, whatever their types."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa
import pytest

from omnigraph import Graph
from tests.read.conftest import column
from tests.read.views import make_view, viewed

SCHEMA = """\
node P { name: String @key  k: String?  age: I32? }
node C { name: String @key  k: String?  size: F64? }
edge Knows: P -> P { k: String? }
edge At: P -> C { k: String? }
"""
# Blocks that bind $z, with the people for whom they have a row.
BLOCKS = {
    '$a knows $z  $z.k = "hit"': {"a", "c"},
    "$a knows $z  $z.age > 40": {"c"},
    '$a at $z  $z.k = "hit"': {"b", "c"},
    "$a at $z  $z.size > 1.5": {"c", "d"},
    '$a $z: knows $_  $z.k = "hit"': {"b"},
    '$a $z: at $_  $z.k = "hit"': {"d"},
    '$a knows $y  not { $y at $z  $z.k = "hit" }': {"c"},
    "$a at $y  not { $z at $y  $z.age < 25 }": {"c", "d"},
    "$z: C  $z.size = 9.0  $a at $y": set(),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    with Graph.init(tmp_path_factory.mktemp("names") / "g.omni", SCHEMA, durability="os") as made:
        made.load(
            {
                "P": pa.table(
                    {
                        "name": ["a", "b", "c", "d"],
                        "k": ["x", "hit", "x", "hit"],
                        "age": [10, 20, 30, 50],
                    }
                ),
                "C": pa.table(
                    {"name": ["p", "q"], "k": ["hit", "x"], "size": [1.0, 2.0]},
                ),
                "Knows": pa.table(
                    {"from": ["a", "b", "c"], "to": ["b", "c", "d"], "k": ["x", "hit", None]}
                ),
                "At": pa.table(
                    {
                        "from": ["b", "c", "c", "d"],
                        "to": ["p", "p", "q", "q"],
                        "k": ["x", "x", "x", "hit"],
                    }
                ),
            }
        )
        yield made


def test_each_block_alone_has_the_expected_rows(graph):
    """Otherwise the tests below would compare nothing."""
    for block, expected in BLOCKS.items():
        without = column(graph, f"match {{ $a: P  not {{ {block} }} }} return {{ $a.name }}")
        assert {"a", "b", "c", "d"} - set(without) == expected, block


@pytest.mark.parametrize("count", [2, 3])
def test_a_name_may_have_another_type_in_each_block(graph, count):
    for blocks in itertools.permutations(BLOCKS, count):
        absent = set().union(*(BLOCKS[block] for block in blocks))
        written = " ".join(f"not {{ {block} }}" for block in blocks)
        kept = column(graph, f"match {{ $a: P  {written} }} return {{ $a.name }}")
        assert kept == sorted({"a", "b", "c", "d"} - absent), blocks


def test_a_block_inside_of_a_block_sees_its_variable(graph):
    text = """match { $a: P
        not { $a knows $z  not { $z at $y  $y.k = "hit" } }
        not { $a at $z  $z.k = "hit"  not { $a at $y  $y.name != $z.name } }
    } return { $a.name }"""
    assert column(graph, text) == ["a", "d"]


def test_names_of_one_type_stay_and_others_are_shown_with_their_types(graph):
    def names(*blocks: str) -> set[str]:
        written = " ".join(f"not {{ {block} }}" for block in blocks)
        query = f"query q() {{ match {{ $a: P  {written} }} return {{ $a.name }} }}"
        return set(re.findall(r"\$z(?:[:-]\w+)?", str(graph.snapshot().explain(query))))

    assert names("$a knows $z", "$a knows $z  $z.age > 3") == {"$z"}
    mixed = names("$a knows $z  $z.age > 3", "$a at $z  $z.size > 3.0", "$a $z: at $_  $z.k = $z.k")
    assert {"$z:P", "$z:C"} < mixed


def test_a_view_hides_the_rows_of_each_type(graph):
    reader = viewed(graph, make_view(graph.catalog, {"C": 'k != "hit"'}))
    text = 'match { $a: P  not { $a at $z  $z.k = "hit" }  not { $a knows $z  $z.k = "hit" } }'
    assert column(reader, f"{text} return {{ $a.name }}") == ["b", "d"]
