"""Loads under an idempotency key: what makes two of them the same, and what a repeat is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, OrphanEdge
from tests.write.load.world import edge, names, node, people


def test_a_repeat_gets_the_first_receipt_whole(filled, tmp_path):
    """What was ignored and set aside, and that the branch was made, also after a restart."""
    data = [node("Person", name="Dan", shoe=3), node("Robot"), edge("Knows", "Ada", "Nobody")]
    keyed = {"branch": "new", "from_branch": "main", "max_rejects": 2, "idempotency_key": "k"}
    first = filled.load(data, **keyed)
    assert (first.branch_created, first.rejected, len(first.warnings)) == (True, 2, 1)
    assert filled.load(iter(data), **keyed) == first
    with Graph.open(filled.uri, durability="os") as again:
        assert again.load(data, **keyed) == first


@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
def test_a_key_and_a_branch_that_the_load_creates(filled, mode):
    """A key counts on its branch; what was refused under it leaves no branch, and may be mended."""
    keyed = {"mode": mode, "from_branch": "main", "idempotency_key": "k"}
    good = [node("Company", name="Acme2"), *people("Ada2")]
    bad = [*good, edge("Knows", "Ada2", "Nobody")]
    with pytest.raises(OrphanEdge):
        filled.load(bad, branch="new", **keyed)
    assert filled.branches.list() == ["main"]
    assert list((Path(filled.uri) / "__recovery").glob("*.branch")) == []
    if mode == "overwrite":
        good = [*people("Ada", "Bob", "Cyd"), *good, *[node("Company", name=n) for n in "AB"]]
        good.append(node("Company", name="Acme"))
    first = filled.load(good, branch="new", **keyed)
    assert first.branch_created
    filled.load(people("Zoe"))
    assert filled.load(good, branch="new", **keyed) == first
    assert "Zoe" not in names(filled, branch="new")
    with pytest.raises(InputError, match="another write"):
        filled.load(people("Other"), branch="new", **keyed)
    if mode != "overwrite":
        second = filled.load(good, branch="newer", **keyed)
        assert second.branch_created
        assert second.commit_id != first.commit_id
        assert "Zoe" in names(filled, branch="newer")


KINDS = {
    "a text": ("text", "a", "b"),
    "a null": ("text", None, ""),
    "a number": ("i64", 1, 2),
    "a sign of zero": ("f64", 0.0, -0.0),
    "a truth": ("ok", True, False),
    "a day": ("day", "2024-05-01", "2024-05-02"),
    "a moment": ("moment", "2024-05-01T10:00:00.001Z", "2024-05-01T10:00:00.002Z"),
    "where lists end": ("words", ["a", "b"], ["ab"]),
    "a list that is empty": ("words", [], None),
    "a vector": ("vector", [1, 2, 3], [1, 2, 4]),
    "bytes": ("body", b"a", b"b"),
}


@pytest.mark.parametrize(("name", "one", "other"), KINDS.values(), ids=list(KINDS))
def test_a_load_of_other_values_is_another_write(empty, name, one, other):
    def data(value):
        return [node("Thing", slug="a", **{name: value}), node("Thing", slug="b")]

    first = empty.load(data(one), idempotency_key="k")
    with pytest.raises(InputError, match="another write"):
        empty.load(data(other), idempotency_key="k")
    assert empty.load(data(one), idempotency_key="k") == first


def test_how_the_data_comes_does_not_matter(empty):
    """The same rows as records, as a table in one piece and in many; new ids do not count."""
    words = [f"w{n}" if n % 3 else None for n in range(40)]
    ids = [f"n{n}" if n % 2 else None for n in range(40)]
    stars = [n if n % 5 else None for n in range(40)]
    records = [node("Note", id=i, text=f"t{i}", stars=s) for i, s in zip(ids, stars, strict=True)]
    table = pa.table({"id": ids, "text": [f"t{i}" for i in ids], "stars": stars})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=7))
    first = empty.load(records, idempotency_key="k")
    for data in ({"Note": table}, {"Note": pieces}, {"Note": table.slice(0, 40)}, iter(records)):
        assert empty.load(data, idempotency_key="k") == first
    lists = [
        node("Thing", slug=f"s{n}", words=[w, "x"] if w else None) for n, w in enumerate(words)
    ]
    first = empty.load(lists, idempotency_key="l")
    slugs = [f"s{n}" for n in range(40)]
    table = pa.table({"slug": slugs, "words": [[w, "x"] if w else None for w in words]})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=3))
    assert empty.load({"Thing": pieces}, idempotency_key="l") == first
