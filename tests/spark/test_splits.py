"""A load in shares makes what a load in one piece makes: graph, receipt, rejects and messages.

The shares run here one after the other, through pickles, as other processes would run them.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.spark.load.run import split_reader
from tests.rotation import rotation
from tests.spark.inputs import SCHEMA, content, in_process, load, make_files

SEEDS = 25
MORE_SEEDS = 50
FIRST = SEEDS + rotation() % 40 * MORE_SEEDS  # others each day


def _compare(seed, folder):
    random = Random(seed)
    files = make_files(random, folder)
    before = folder / "before.ndjson"
    people = range(0, 60, 3) if random.random() < 0.6 else ()
    photo = "base64:b2xk"
    before.write_text(
        "".join(
            json.dumps({"type": "P", "data": {"name": f"p{n}", "age": n, "photo": photo}}) + "\n"
            for n in people
        )
    )
    said, state = [], random.getstate()
    for name, reader in (
        ("one", None),
        ("many", split_reader(in_process, random.choice([50, 200, 1_000]))),
    ):
        random.setstate(state)
        location = folder / f"{name}.omni"
        rejects = folder / f"{name}.rejects"
        with Graph.init(location, SCHEMA, durability="os") as graph:
            graph.load(before)
            reported = load(graph, files, random, reader, rejects)
            kept = rejects.read_text() if rejects.exists() else None
            said.append((reported, kept, content(graph)))
        assert not list((location / "__recovery").glob("*.staging"))
    assert said[0] == said[1]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_load_in_shares_is_a_load(seed, tmp_path):
    _compare(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE_SEEDS))
def test_many_loads_in_shares_are_loads(seed, tmp_path):
    _compare(seed, tmp_path)


def test_a_refused_load_leaves_no_file_behind(tmp_path):
    file = tmp_path / "data.ndjson"
    lines = [json.dumps({"type": "P", "data": {"name": f"p{n}"}}) for n in range(100)]
    file.write_text("\n".join([*lines, '{"type": "P", "data": {}}']))
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        before = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
        random = Random(1)
        said = load(graph, [str(file)], random, split_reader(in_process, 500))
        assert said[0] == "LoadError"
        after = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
    assert after == before
