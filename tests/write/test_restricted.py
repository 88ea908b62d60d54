"""Writes of an actor that does not see all rows: matching, new rows, collisions, and texts."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.api.row_access import row_security
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import (
    CardinalityViolation,
    IdempotencyKeyReused,
    KeyConflict,
    OrphanEdge,
    PolicyDenied,
    UniqueViolation,
)
from omnigraph.spark.load.run import split_reader
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.commit.deaths import Died
from tests.commit.together import sizes, together
from tests.commit.world import at, raising
from tests.spark.inputs import in_process
from tests.write.tenants import SECRETS, denied, make, open_graph, run

pytestmark = pytest.mark.rotates(2)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    location = tmp_path_factory.mktemp("tenants") / "g.omni"
    make(location)
    return location


@pytest.fixture
def graph(template, tmp_path):
    shutil.copytree(template, tmp_path / "g.omni")
    with open_graph(tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def ana(graph):
    return graph.for_actor("ana")


@pytest.fixture
def owner(graph):
    """Without a policy: it sees what is stored."""
    with Graph.open(graph.uri, durability="os") as owner:
        yield owner


def content(owner):
    """Every row."""
    snapshot = owner.snapshot()
    return {
        name: sorted(json.dumps(row, sort_keys=True) for row in snapshot.read(name).to_pylist())
        for name in ("Team", "Tag", "Kind", "Knows", "In", "Under")
    } | {
        "Person": sorted(
            str(row)
            for row in snapshot.read("Person", ["id", "name", "tenant", "mail"]).to_pylist()
        )
    }


def people(owner):
    rows = owner.snapshot().read("Person", ["name", "tenant", "mail"]).to_pylist()
    return {row["name"]: (row["tenant"], row["mail"]) for row in rows}


def edge(source, target, row_id=None, name="Knows", **data):
    return {
        "edge": name,
        "from": source,
        "to": target,
        "data": data | ({"id": row_id} if row_id else {}),
    }


def person(name, tenant="t1", **more):
    return {"type": "Person", "data": {"name": name, "tenant": tenant, **more}}


def edge_id(owner, source, target, name="Knows"):
    rows = owner.snapshot().read(name, ["id", "src", "dst"]).to_pylist()
    (row_id,) = [row["id"] for row in rows if (row["src"], row["dst"]) == (source, target)]
    return row_id


# -- matching ---------------------------------------------------------------------------------


def test_an_update_changes_visible_rows_only(ana, owner):
    receipt = run(ana, 'update Person set { mail: null } where name != ""')
    assert receipt.affected_nodes == receipt.tables["node:Person"].updated == 3
    assert people(owner)["zoe"] == ("t2", "zoe@x")
    assert people(owner)["ann"] == ("t1", None)


@pytest.mark.parametrize(
    "statement",
    [
        'update Person set { mail: "a@x" } where name = "zoe"',
        'delete Person where name = "zoe"',
        'delete Person where mail = "zoe@x"',
        'delete Knows where from = "ann" and to = "zoe"',
        "delete Knows where secret = true",
        'update Knows set { secret: null } where from = "art"',
        'update In set { since: 5 } where to = "t2-team"',
        'delete In where from = "abe"',
    ],
)
def test_a_statement_about_hidden_rows_matches_nothing(ana, owner, statement):
    before, head = content(owner), owner.snapshot().commit_id
    receipt = run(ana, statement)
    assert (receipt.commit_id, receipt.affected_nodes, receipt.affected_edges) == (None, 0, 0)
    assert dict(receipt.tables) == {}
    assert (content(owner), owner.snapshot().commit_id) == (before, head)


def test_an_edge_is_matched_if_both_ends_are_visible(ana, owner):
    receipt = run(ana, "update In set { since: 7 } where since = 1")
    assert receipt.affected_edges == 1
    rows = owner.snapshot().read("In", ["src", "since"]).to_pylist()
    assert {row["src"]: row["since"] for row in rows} == {"ann": 7, "zoe": 1, "abe": 1}


def test_a_delete_takes_the_visible_edges_along(ana, owner):
    run(ana, 'insert Person { name: "new", tenant: "t1" } insert Knows { from: "new", to: "ann" }')
    receipt = run(ana, 'delete Person where name = "new"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)


# -- one refusal ------------------------------------------------------------------------------

DENIED = {
    "an insert outside of the view": lambda g, i: run(
        g, 'insert Person { name: "x", tenant: "t2" }'
    ),
    "an insert of a hidden type": lambda g, i: run(
        g, 'insert Knows { from: "abe", to: "ann", secret: false }'
    ),
    "an insert over a hidden key": lambda g, i: run(
        g, 'insert Person { name: "zoe", tenant: "t1" }'
    ),
    "an update that leaves the view": lambda g, i: run(
        g, 'update Person set { tenant: "t2" } where name = "art"'
    ),
    "a unique value of a hidden row": lambda g, i: run(
        g, 'update Person set { mail: "zoe@x" } where name = "art"'
    ),
    "a unique pair of a hidden edge": lambda g, i: run(
        g, 'insert Knows { from: "art", to: "abe" }'
    ),
    "a cardinality with hidden edges": lambda g, i: run(
        g, 'insert Knows { from: "ann", to: "abe" }'
    ),
    "a delete that would take hidden edges along": lambda g, i: run(
        g, 'delete Person where name = "ann"'
    ),
    "a load outside of the view": lambda g, i: g.load([person("x", "t2")]),
    "a merge load over a hidden key": lambda g, i: g.load([person("zoe")]),
    "an append load over a hidden key": lambda g, i: g.load([person("zoe")], "append"),
    "a load over a hidden edge": lambda g, i: g.load([edge("abe", "ann", i)]),
    "a load of a hidden unique value": lambda g, i: g.load([person("x", mail="zoe@x")]),
    "a load that may reject": lambda g, i: g.load([person("x", mail="zoe@x")], max_rejects=9),
    "a load onto a hidden key that may reject": lambda g, i: g.load(
        [person("zoe"), person("fine")], max_rejects=9
    ),
    "a load outside of the view that may reject": lambda g, i: g.load(
        [person("x", "t2"), person("fine")], max_rejects=9
    ),
    "a load that counts hidden edges and may reject": lambda g, i: g.load(
        [edge("ann", "abe")], max_rejects=9
    ),
    "a dry run over a hidden key": lambda g, i: g.load([person("zoe")], dry_run=True),
    "an overwrite of a type that is partly hidden": lambda g, i: g.load([person("x")], "overwrite"),
    "an overwrite of edges with hidden ones": lambda g, i: g.load(
        [edge("ann", "abe")], "overwrite"
    ),
    "an overwrite of nodes with hidden edges": lambda g, i: g.load(
        [{"type": "Kind", "data": {"name": name}} for name in ("big", "small")], "overwrite"
    ),
    "an append over a hidden key": lambda g, i: g.append(
        {"Person": pa.table({"name": ["zoe"], "tenant": ["t1"]})}
    ),
    "an append outside of the view": lambda g, i: g.append(
        {"Person": pa.table({"name": ["x"], "tenant": ["t2"]})}
    ),
}


@pytest.fixture(scope="module")
def shared(template, tmp_path_factory):
    """A graph that refused writes leave alone, so one is enough."""
    location = tmp_path_factory.mktemp("shared") / "g.omni"
    shutil.copytree(template, location)
    with open_graph(location) as graph, Graph.open(location, durability="os") as owner:
        yield graph.for_actor("ana"), owner


@pytest.mark.parametrize("case", DENIED)
def test_what_needs_hidden_rows_is_refused_with_one_text(shared, case):
    ana, owner = shared
    before, head = content(owner), owner.snapshot().commit_id
    with pytest.raises(PolicyDenied) as refusal:
        DENIED[case](ana, edge_id(owner, "art", "abe"))
    assert str(refusal.value) == denied()
    assert refusal.value.code == "policy_denied"
    assert refusal.value.hint == PolicyDenied.beyond_view("a", "b", None).hint
    assert refusal.value.details == {
        "actor": "ana",
        "action": "change",
        "branch": "main",
        "target": None,
    }
    assert (content(owner), owner.snapshot().commit_id) == (before, head)
    assert owner._handle.store.sidecars.list() == []


def test_a_handle_with_a_policy_and_without_an_actor_may_write_nothing(graph):
    with pytest.raises(PolicyDenied):
        run(graph, 'insert Tag { name: "blue" }')


def test_the_actor_of_a_call_has_its_own_view(graph, owner):
    run(graph, 'insert Person { name: "x", tenant: "t2" }', actor="bo")
    with pytest.raises(PolicyDenied):
        run(graph, 'insert Person { name: "y", tenant: "t2" }', actor="ana")
    run(graph, 'insert Person { name: "y", tenant: "t2" }', actor="owner")
    assert {"x", "y"} <= people(owner).keys()


# -- hidden nodes are missing nodes -----------------------------------------------------------

TO_NODE = {
    "mutate": lambda g, name, p: run(g, f'insert Knows {{ from: "abe", to: "{name}" }}'),
    "mutate from": lambda g, name, p: run(g, f'insert Knows {{ from: "{name}", to: "abe" }}'),
    "load": lambda g, name, p: g.load([edge("abe", name)]),
    "load of an id": lambda g, name, p: g.load([edge("abe", name, "k")]),
    "append": lambda g, name, p: g.append({"Knows": pa.table({"src": ["abe"], "dst": [name]})}),
    "a colliding pair": lambda g, name, p: run(g, f'insert Knows {{ from: "ann", to: "{name}" }}'),
    "rejects": lambda g, name, p: g.load(
        [edge("abe", name), person("art")], rejects=p / "rejects", max_rejects=0
    ),
}


def shown_of(error):
    return json.dumps([type(error).__name__, str(error), error.hint, error.details], default=str)


@pytest.mark.parametrize("how", TO_NODE)
def test_an_edge_to_a_hidden_node_gets_the_text_of_a_missing_one(shared, how, tmp_path):
    ana, _ = shared
    texts = []
    for name in ("zoe", "eoz"):
        with pytest.raises(OrphanEdge) as refusal:
            TO_NODE[how](ana, name, tmp_path)
        made = refusal.value.details["id"]
        texts.append(shown_of(refusal.value).replace(name, "NODE").replace(made, "EDGE"))
    assert texts[0] == texts[1]
    assert "edge Knows:" in texts[0]


def test_rejects_do_not_tell_hidden_from_missing(ana, owner, tmp_path):
    texts = []
    for name in ("zoe", "eoz"):
        receipt = ana.load(
            [edge("abe", name), person(f"p{name}")], rejects=tmp_path / name, dry_run=True
        )
        assert (receipt.rejected, receipt.met) == (1, {"edge:Knows": 0, "node:Person": 1})
        texts.append((tmp_path / name).read_text().replace(name, "NODE"))
    assert texts[0] == texts[1]


# -- visible violations keep their texts ------------------------------------------------------


def test_a_collision_with_a_visible_row_is_explained(ana):
    with pytest.raises(UniqueViolation, match="value 'ann@x' held by 'ann' and 'art'"):
        run(ana, 'update Person set { mail: "ann@x" } where name = "art"')
    with pytest.raises(KeyConflict, match="there is a row with id 'ann' already"):
        ana.load([person("ann")], "append")


def test_a_cardinality_counts_visible_edges_in_its_text(ana, owner):
    """``abe`` gets a hidden edge; three visible ones are too many by themselves."""
    run(owner, 'insert Knows { from: "abe", to: "zoe" }')
    records = [edge("abe", name) for name in ("ann", "art", "abe")]
    with pytest.raises(CardinalityViolation) as refusal:
        ana.load(records)
    assert "source 'abe' has 3 edges (max 2)" in str(refusal.value)
    assert refusal.value.details["count"] == 3
    assert not any(secret in shown_of(refusal.value) for secret in SECRETS)
    with pytest.raises(PolicyDenied):
        ana.load(records[:2])
    ana.load(records[:1])


# -- on the state that is committed -----------------------------------------------------------


def hide(owner, name, tenant="t2"):
    run(owner, f'update Person set {{ tenant: "{tenant}" }} where name = "{name}"')


@pytest.mark.parametrize("point", [Failpoint.WRITE_AFTER_LEASES, Failpoint.WRITE_AFTER_TABLES])
def test_a_node_that_is_hidden_meanwhile_is_missing(ana, owner, point):
    with at(point, lambda: hide(owner, "art")), pytest.raises(OrphanEdge):
        run(ana, 'insert Knows { from: "abe", to: "art" }')
    assert len(owner.snapshot().read("Knows")) == 4


@pytest.mark.parametrize(
    "statement", ["update In set { since: 9 } where since = 1", "delete In where since = 1"]
)
def test_an_edge_that_is_hidden_meanwhile_stays(ana, owner, statement):
    """Its end moves to the other tenant after the statement has matched it."""
    meanwhile = at(Failpoint.WRITE_AFTER_TABLES, lambda: hide(owner, "ann"))
    with meanwhile, pytest.raises(PolicyDenied) as refusal:
        run(ana, statement)
    assert str(refusal.value) == denied()
    hide(owner, "ann", "t1")
    with at(Failpoint.WRITE_AFTER_LEASES, lambda: hide(owner, "ann")):
        # Staged again, it matches nothing.
        assert run(ana, statement).commit_id is None
    rows = owner.snapshot().read("In", ["src", "since"]).to_pylist()
    assert {row["src"]: row["since"] for row in rows} == {"ann": 1, "zoe": 1, "abe": 1}


@pytest.mark.parametrize("point", [Failpoint.WRITE_AFTER_SIDECAR, Failpoint.WRITE_AFTER_TABLES])
def test_a_writer_that_dies_is_recovered_as_ever(graph, ana, owner, point):
    before = people(owner)
    with at(point, raising(Died())), pytest.raises(Died):
        run(ana, 'update Person set { mail: "new@x" } where name = "art"')
    with Graph.open(graph.uri, durability="os") as fresh:
        after = people(fresh)
        done = before | {"art": ("t1", "new@x")}
        assert after == (done if point is Failpoint.WRITE_AFTER_TABLES else before)
        assert fresh._handle.store.sidecars.list() == []


# -- groups -----------------------------------------------------------------------------------


def test_each_member_of_a_group_is_judged_by_its_own_view(graph, owner):
    ana, bo = graph.for_actor("ana"), graph.for_actor("bo")
    outcomes = together(
        graph,
        lambda: run(ana, 'insert Person { name: "g1", tenant: "t1" }'),
        lambda: run(bo, 'insert Person { name: "g2", tenant: "t2" }'),
        lambda: run(ana, 'insert Person { name: "g3", tenant: "t2" }'),
        lambda: run(bo, 'insert Knows { from: "zed", to: "g1" }'),
        lambda: run(ana, 'insert Knows { from: "abe", to: "g1" }'),
        lambda: run(ana, 'insert Person { name: "zoe", tenant: "t1" }'),
        lambda: ana.load([person("g4", mail="zoe@x")]),
        lambda: bo.load([edge("zed", "g2")]),
        lambda: ana.append({"Person": pa.table({"name": ["g5"], "tenant": ["t1"]})}),
    )
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == [
        "Receipt",
        "Receipt",
        "PolicyDenied",
        "OrphanEdge",
        "Receipt",
        "PolicyDenied",
        "PolicyDenied",
        "LoadReceipt",
        "Receipt",
    ]
    assert [str(outcomes[n]) for n in (2, 5, 6)] == [denied()] * 3
    assert max(size for _, size in sizes(graph)) == 5
    assert people(owner).keys() >= {"g1", "g2", "g5"}
    assert not people(owner).keys() & {"g3", "g4"}
    assert people(owner)["zoe"] == ("t2", "zoe@x")


# -- only once --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda g: run(g, 'insert Tag { name: "blue" }', idempotency_key="k"),
        lambda g: run(g, 'update Person set { mail: null } where name != ""', idempotency_key="k"),
        lambda g: g.load([{"type": "Tag", "data": {"name": "blue"}}], idempotency_key="k"),
    ],
)
def test_a_key_of_another_actor_gives_no_receipt(graph, write):
    """Not even to an actor with the same view, nor to one who sees all."""
    first = write(graph.for_actor("ana"))
    assert write(graph.for_actor("ana")) == first
    for actor in ("bo", "cy", "owner"):
        with pytest.raises(IdempotencyKeyReused) as refusal:
            write(graph.for_actor(actor))
        assert "t1" not in shown_of(refusal.value)


def test_a_receipt_of_all_rows_is_not_for_a_restricted_actor(graph):
    text = 'update Person set { mail: null } where name != ""'
    assert run(graph.for_actor("owner"), text, idempotency_key="k").affected_nodes == 5
    with pytest.raises(IdempotencyKeyReused):
        run(graph.for_actor("ana"), text, idempotency_key="k")


# -- Blobs ------------------------------------------------------------------------------------


def test_a_blob_is_written_to_visible_rows_only(ana, owner):
    text = 'query q($b: Blob) {{ update Person set {{ photo: $b }} where name = "{}" }}'
    assert ana.mutate(text.format("zoe"), None, {"b": "base64:eA=="}).commit_id is None
    assert ana.mutate(text.format("art"), None, {"b": "base64:eA=="}).affected_nodes == 1
    assert owner.snapshot().read_blob("Person", "art", "photo") == b"x"
    assert owner.snapshot().read_blob("Person", "zoe", "photo") is None


# -- large loads ------------------------------------------------------------------------------


def load_directly(ana, records, mode, monkeypatch, tmp_path):
    """Rows become fragments of their tables while the rest is read."""
    monkeypatch.setattr("omnigraph.write.load.spool._DIRECT", 0)
    return ana.load(records, mode)


def load_by_tasks(ana, records, mode, monkeypatch, tmp_path):
    """What ``graph.load(engine="spark")`` does, with its tasks run in this process."""
    file = tmp_path / "rows.ndjson"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    security = row_security(ana._handle, "ana", "change", "main", ana.catalog)
    job = LoadJob([str(file)], LoadMode(mode), security=security)
    reader = split_reader(in_process, 200)
    return load_into(
        ana._handle.store, ana.catalog, job, LoadDestination("main", None, "ana"), reader
    )


@pytest.mark.parametrize("load", [load_directly, load_by_tasks])
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_rows_in_fragments_are_checked_like_others(ana, owner, load, mode, monkeypatch, tmp_path):
    before = content(owner)
    some = [person(f"p{n}") for n in range(9)]
    for records, error in (
        ([*some, person("x", "t2")], PolicyDenied),
        ([*some, person("zoe")], PolicyDenied),
        ([*some, person("x", mail="zoe@x")], PolicyDenied),
        ([*some, edge("ann", "abe")], PolicyDenied),
        ([*some, edge("abe", "zoe")], OrphanEdge),
    ):
        with pytest.raises(error) as refusal:
            load(ana, records, mode, monkeypatch, tmp_path)
        assert error is not PolicyDenied or str(refusal.value) == denied()
        assert content(owner) == before
    receipt = load(ana, [*some, edge("abe", "p1")], mode, monkeypatch, tmp_path)
    assert receipt.tables["node:Person"].inserted == 9
    assert people(owner)["zoe"] == ("t2", "zoe@x")
