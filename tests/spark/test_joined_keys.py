"""Keys that are joined by Spark give the same verdicts as keys that are held."""

from __future__ import annotations

import json
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.settings import Settings
from omnigraph.spark.load.joined_keys import KEY_BYTES, KeyJoins
from omnigraph.spark.load.run import split_reader
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.rotation import in_turn
from tests.spark.inputs import OWN_ID, content, in_process

SCHEMA = """
node P {
    name: String @key
    mail: String? @unique
    first: String?
    last: String?
    score: F64? @unique
    born: Date? @unique
    seen: DateTime? @unique
    big: U64? @unique
    is_root: Bool? @unique
    @unique(first, last)
}
node Q { note: String? }
edge K: P -> P { w: I32? @unique }
edge O: P -> Q @card(1..2)
edge Once: P -> P { @unique(src, dst) }
"""


def records(random: Random, count: int, *, spread: int) -> list[dict]:
    """Records of which some break a rule together; fewer, the further they are spread."""
    return [
        _edge(random, spread) if random.random() < 0.5 else _node(random, spread)
        for _ in range(count)
    ]


def _node(random: Random, spread: int) -> dict:
    if random.random() < 0.25:
        return {"type": "Q", "data": {"id": f"q{random.randrange(spread)}"}}
    data = {"name": f"p{random.randrange(spread)}"}
    values = {
        "mail": f"m{random.randrange(4 * spread)}",
        "first": random.choice("abc"),
        "last": f"l{random.randrange(spread)}",
        "score": random.choice([0.0, -0.0, 1.5, float(random.randrange(4 * spread))]),
        "born": f"2{random.randrange(1000):03}-01-01",
        "seen": f"2{random.randrange(1000):03}-01-01T10:00:00Z",
        "big": 2**64 - 1 - random.randrange(9 * spread),
        "is_root": random.random() < 0.5,
    }
    rare = {"is_root": 0.02, "score": 0.1}
    data |= {name: value for name, value in values.items() if random.random() < rare.get(name, 0.2)}
    return {"type": "P", "data": data}


def _edge(random: Random, spread: int) -> dict:
    kind = random.choice(["K", "O", "Once"])
    end = "q" if kind == "O" else "p"
    data: dict = {"w": random.randrange(9 * spread)} if kind == "K" else {}
    if random.random() < 0.6:
        data["id"] = f"{kind}{random.randrange(2 * spread)}"
    return {
        "edge": kind,
        "from": f"p{random.randrange(spread)}",
        "to": f"{end}{random.randrange(spread)}",
        "data": data,
    }


def reported(graph, path, mode, joins, rejects=None):
    """What a load says: its receipt, or its error."""
    job = LoadJob([str(path)], mode, rejects=rejects, max_rejects=2**63 if rejects else 0)
    reader = split_reader(in_process, 1_000, joins)
    try:
        receipt = load_into(
            graph._handle.store, graph.catalog, job, LoadDestination("main"), reader
        )
    except OmniGraphError as error:
        return type(error).__name__, plain(f"{error.message} {error.hint} {error.details}")
    return receipt.records, receipt.rejected, receipt.met


def plain(text):
    """Without the ids that rows were given, and in one order where it is by those."""
    return sorted(OWN_ID.sub("-", text).splitlines())


def compare(seed, folder, engine, loads=3):
    random = Random(seed)
    spread = random.choice([5, 15, 40])
    steps = []
    for number in range(loads):
        path = folder / f"{number}.ndjson"
        rows = records(random, random.randrange(1, 60), spread=spread)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        steps.append((path, random.choice(list(LoadMode)), number == 0 or random.random() < 0.8))
    said = []
    for name, joins in (("held", None), ("joined", KeyJoins(engine, -1))):
        with Graph.init(folder / f"{name}.omni", SCHEMA, durability="os") as graph:
            for number, (path, mode, is_lenient) in enumerate(steps):
                rejects = folder / f"{name}.{number}.rejects" if is_lenient else None
                said.append((name, reported(graph, path, mode, joins, rejects)))
                kept = rejects is not None and rejects.exists()
                said.append((name, rejects and kept and plain(rejects.read_text())))
            said.append((name, content(graph)))
    retained = [item for name, item in said if name == "held"]
    assert retained == [item for name, item in said if name == "joined"]


@pytest.mark.parametrize("seed", [4])
def test_joined_keys_judge_as_held_keys_do(seed, spark, tmp_path):
    compare(seed, tmp_path, spark, loads=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_turn(range(40), 4))
def test_many_loads_are_judged_as_held_keys_do(seed, engine, tmp_path):
    compare(seed, tmp_path, engine)


def test_a_load_of_many_keys_joins_them_by_itself(connect, tmp_path, caplog, monkeypatch):
    path = tmp_path / "people.ndjson"
    rows = [{"type": "P", "data": {"name": f"p{n}", "mail": f"m{n % 400}"}} for n in range(500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:400]))
    monkeypatch.setenv("OMNIGRAPH_SPARK_KEY_BYTES", "2000")
    caplog.set_level("INFO", "omnigraph")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        receipt = graph.load(path, engine="spark", spark=connect.session)
        assert receipt.records == 400
        assert "so Spark joins them" in caplog.text
        before = graph.commits()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(OmniGraphError, match="'m0' held by 'p0' and 'p400'") as caught:
            graph.load(path, "overwrite", engine="spark", spark=connect.session)
        assert caught.value.details["line"] == 401
        assert graph.commits() == before


def test_few_keys_are_held(spark):
    assert KeyJoins(spark).for_keys(KEY_BYTES, None) is None


def test_a_limit_that_is_no_number_is_refused(spark):
    with pytest.raises(InputError, match="OMNIGRAPH_SPARK_KEY_BYTES"):
        _ = Settings.from_environ({"OMNIGRAPH_SPARK_KEY_BYTES": "1 GB"}).spark_key_bytes
