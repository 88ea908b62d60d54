"""A branch is never a way to a wider view, and what reports or moves all rows needs to see them."""

from __future__ import annotations

import shutil

import pytest

import omnigraph
from omnigraph import EmbeddingConfig, Graph, Policy
from omnigraph.errors import NotFound, OmniGraphError, PolicyDenied
from tests.write.tenants import BUNDLE, SCHEMA, denied, make, run

pytestmark = pytest.mark.rotates(2)

TEAMS = [{"type": "Team", "data": {"name": "new", "tenant": "t1"}}]
TAGS = [{"type": "Tag", "data": {"name": "blue"}}]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    location = tmp_path_factory.mktemp("tenants") / "g.omni"
    make(location)
    return location


def open_copy(template, location):
    shutil.copytree(template, location)
    policy, config = Policy.parse(BUNDLE), EmbeddingConfig("mock")
    return Graph.open(location, policy=policy, embedding=config, durability="os")


@pytest.fixture
def graph(template, tmp_path):
    with open_copy(template, tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def ana(graph):
    return graph.for_actor("ana")


@pytest.fixture
def owner(graph):
    return graph.for_actor("owner")


# -- branches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["work/x", "copy/x", "other"])
def test_a_branch_with_the_same_view_or_less_is_created(ana, name):
    ana.branches.create(name)
    assert name in ana.branches.list()


def test_a_branch_with_a_wider_view_is_refused(ana, owner):
    text = denied("branch_create", "main", "wide/x")
    with pytest.raises(PolicyDenied) as refusal:
        ana.branches.create("wide/x")
    assert str(refusal.value) == text
    with pytest.raises(PolicyDenied) as refusal:
        ana.load(TAGS, branch="wide/x", from_branch="main")
    assert str(refusal.value) == text
    assert ana.branches.list() == ["main"]
    owner.branches.create("wide/x")
    assert ana.load(TAGS, branch="wide/x", from_branch="main").branch_created is False
    ana.branches.create("wide/y", "wide/x")


def test_two_steps_are_not_a_way_to_a_wider_view(ana):
    ana.branches.create("copy/x")
    for source, name in (("copy/x", "work/x"), ("copy/x", "main2"), ("copy/x", "wide/x")):
        if name != "main2":
            with pytest.raises(PolicyDenied):
                ana.branches.create(name, source)
        else:
            ana.branches.create(name, source)
            with pytest.raises(PolicyDenied):
                ana.branches.create("work/y", name)


def test_a_type_that_was_dropped_counts_too(tmp_path):
    """The view of today is the same on both branches; an earlier schema had one more type."""
    policy = Policy.parse(
        BUNDLE + "  - {id: list, actors: {group: tenants}, types: [A], branches: [main]}\n"
    )
    schema = "node A { name: String @key }"
    location = tmp_path / "g.omni"
    with Graph.init(location, schema + "node B { x: I32? }", durability="os") as plain:
        run(plain, "insert B { x: 41 }")
        plain.schema.apply(schema)
    with Graph.open(location, policy=policy, durability="os") as graph:
        ana = graph.for_actor("ana")
        with pytest.raises(PolicyDenied):
            ana.branches.create("wide/x")
        with pytest.raises(PolicyDenied):
            ana.load([{"type": "A", "data": {"name": "x"}}], branch="wide/x", from_branch="main")
        assert graph.branches.list() == ["main"]


def test_a_tag_shows_what_the_branch_of_its_commit_shows(ana, owner):
    """Whatever its name is."""
    made = ana.tags.create("wide/x")
    state = ana._handle.read(omnigraph.commit.history.SnapshotRef(tag="wide/x"))
    assert state.snapshot.head.commit_id == made.commit_id
    assert state.view == ana.snapshot()._context.view
    assert not state.view.is_whole
    owner.branches.create("wide/y")
    receipt = run(owner, 'insert Tag { name: "blue" }', branch="wide/y")
    for ref in ({"commit": made.commit_id}, {"at": made.commit_id}, {"tag": "wide/x"}):
        assert not ana.snapshot(**ref)._context.view.is_whole
    assert ana.snapshot(commit=receipt.commit_id)._context.view.is_whole


def test_a_load_onto_a_new_branch_is_judged_by_the_view_of_the_new_name(ana):
    """``copy/**`` hides the tags."""
    with pytest.raises(PolicyDenied) as refusal:
        ana.load(TAGS, branch="copy/x", from_branch="main")
    assert str(refusal.value) == denied("change", "copy/x")
    assert ana.branches.list() == ["main"]
    assert ana.load(TEAMS, branch="copy/x", from_branch="main").branch_created


# -- merges -----------------------------------------------------------------------------------


def test_a_merge_needs_all_rows_of_the_types_that_it_changes(ana, owner):
    owner.branches.create("work/x")
    run(ana, 'insert Person { name: "x", tenant: "t1" }', branch="work/x")
    for how in ({}, {"dry_run": True}, {"resolve": "theirs"}):
        with pytest.raises(PolicyDenied) as refusal:
            ana.merge("work/x", **how)
        assert str(refusal.value) == denied("branch_merge", "work/x", "main")
    assert owner.merge("work/x").commit_id is not None


def test_a_merge_of_types_that_are_seen_whole_is_allowed(ana, owner):
    owner.branches.create("work/x")
    ana.load(TAGS, branch="work/x")
    assert ana.merge("work/x", dry_run=True).tables["node:Tag"].inserted == 1
    with pytest.raises(PolicyDenied, match="'branch_delete'"):
        ana.merge("work/x", delete_branch=True)
    assert ana.merge("work/x").commit_id is not None


def test_a_merge_needs_the_view_on_both_branches(ana, owner):
    """``copy/**`` hides the tags, ``main`` does not."""
    for source, target in (("copy/x", "main"), ("main", "copy/x")):
        owner.branches.create("copy/x")
        owner.load(TAGS, branch=source)
        with pytest.raises(PolicyDenied):
            ana.merge(source, target)
        owner.merge(source, target)
        owner.branches.delete("copy/x")
        run(owner, 'delete Tag where name = "blue"')


def test_conflicts_are_not_reported_to_a_restricted_actor(ana, owner):
    owner.branches.create("work/x")
    for branch, mail in (("main", "a@x"), ("work/x", "b@x")):
        text = f'update Person set {{ mail: "{mail}" }} where name = "zoe"'
        run(owner, text, branch=branch)
    with pytest.raises(PolicyDenied) as refusal:
        ana.merge("work/x", dry_run=True)
    assert str(refusal.value) == denied("branch_merge", "work/x", "main")
    assert len(owner.merge("work/x", dry_run=True).conflicts) == 1


@pytest.mark.parametrize("verb", ["revert", "cherry_pick"])
def test_one_commit_is_replayed_by_who_sees_all_of_its_types(ana, owner, verb):
    owner.branches.create("work/x")
    hidden = run(owner, 'insert Person { name: "y", tenant: "t2" }', branch="work/x").commit_id
    open_ = owner.load(TAGS, branch="work/x").commit_id
    into = "work/x" if verb == "revert" else "main"
    for dry_run in (True, False):
        with pytest.raises(PolicyDenied) as refusal:
            getattr(ana, verb)(hidden, into, dry_run=dry_run)
        assert str(refusal.value) == denied("change", into)
        getattr(ana, verb)(open_, into, dry_run=dry_run)


def test_a_commit_of_a_branch_with_less_is_not_picked(ana, owner):
    """The tags of ``copy/x`` are hidden, those of ``main`` are not."""
    owner.branches.create("copy/x")
    made = owner.load(TAGS, branch="copy/x").commit_id
    with pytest.raises(PolicyDenied):
        ana.cherry_pick(made, "main")
    assert owner.cherry_pick(made, "main").commit_id is not None


# -- calls that need all rows -----------------------------------------------------------------

WHOLE = {
    "schema_apply": lambda g, p: g.schema.apply(SCHEMA + "node New { x: I32? }"),
    "read schema": lambda g, p: g.schema.apply(SCHEMA + "node New { x: I32? }", dry_run=True),
    "branch_delete": lambda g, p: g.branches.delete("work/x"),
    "admin optimize": lambda g, p: g.maintenance.optimize(),
    "admin repair": lambda g, p: g.maintenance.repair(),
    "admin backup": lambda g, p: g.maintenance.backup(p / "backup"),
    "admin cleanup": lambda g, p: g.maintenance.cleanup(keep_versions=5, dry_run=True),
    "admin doctor": lambda g, p: g.maintenance.doctor(),
    "admin verify": lambda g, p: g.maintenance.verify(checksums=False),
    "admin verify a branch": lambda g, p: g.maintenance.verify("main", checksums=False),
    "admin ensure": lambda g, p: g.indexes.ensure(),
    "admin rebuild": lambda g, p: g.indexes.rebuild("Team"),
    "read indexes": lambda g, p: g.indexes.status(),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_call_over_all_rows_needs_to_see_them(template, tmp_path, case):
    with open_copy(template, tmp_path / "g.omni") as graph:
        owner, ana = graph.for_actor("owner"), graph.for_actor("ana")
        if case == "branch_delete":
            owner.branches.create("work/x")
        head = owner.snapshot().commit_id
        with pytest.raises(PolicyDenied, match="beyond its view") as refusal:
            WHOLE[case](ana, tmp_path)
        assert f"action '{case.split()[0]}'" in str(refusal.value)
        assert owner.snapshot().commit_id == head
        assert not (tmp_path / "backup").exists()
        WHOLE[case](owner, tmp_path)


def test_a_call_over_all_branches_needs_to_see_all_of_them(graph):
    """A view that is whole on ``wide/**`` only."""
    owner, ana = graph.for_actor("owner"), graph.for_actor("ana")
    owner.branches.create("wide/x")
    ana.maintenance.optimize("wide/x")
    ana.maintenance.verify("wide/x", checksums=False)
    for call in (
        lambda: ana.maintenance.cleanup(keep_versions=5),
        lambda: ana.maintenance.verify(checksums=False),
    ):
        with pytest.raises(PolicyDenied):
            call()


def test_copies_without_an_open_graph_ask_the_policy_that_they_are_given(owner, tmp_path):
    point = tmp_path / "backup"
    owner.maintenance.backup(point)
    policy, refusing = Policy.parse(BUNDLE), Policy.parse("{version: 2, rows: []}")
    calls = {
        "clone": lambda **how: omnigraph.clone(owner.uri, tmp_path / "clone.omni", **how),
        "restore": lambda **how: omnigraph.restore(point, tmp_path / "restored.omni", **how),
        "prune": lambda **how: omnigraph.prune_backup(point, keep=1, dry_run=True, **how),
    }
    for name, call in calls.items():
        with pytest.raises(PolicyDenied, match="'admin' for unknown actor 'owner'"):
            call(policy=refusing, actor="owner")
        with pytest.raises(PolicyDenied, match="no actor for engine-layer policy check"):
            call(policy=policy)
        if name != "prune":
            with pytest.raises(PolicyDenied) as refusal:
                call(policy=policy, actor="ana")
            assert str(refusal.value) == denied("admin", None)
        assert sorted(path.name for path in tmp_path.glob("*.omni")) == sorted(
            {"g.omni"}
            | ({"clone.omni"} if name != "clone" else set())
            | ({"restored.omni"} if name == "prune" else set())
        )
        call(policy=policy, actor="owner")


def test_embeddings_need_all_rows_of_their_types(tmp_path):
    schema = 'node Doc { slug: String @key  text: String  v: Vector(8)? @embed("text") }'
    rows = "rows: [{id: own, actors: {group: all}, types: [Doc], where: slug = $actor.id}]"
    rule = "{id: r, allow: {actors: {group: all}, actions: [read, change]}}"
    bundle = f"version: 2\ngroups: {{all: [ana]}}\nrules: [{rule}]\n{rows}\n"
    config = EmbeddingConfig("mock")
    with Graph.init(tmp_path / "g.omni", schema, embedding=config, durability="os") as plain:
        plain.load([{"type": "Doc", "data": {"slug": "a", "text": "hello"}}])
    policy = Policy.parse(bundle)
    with Graph.open(tmp_path / "g.omni", policy=policy, embedding=config, actor="ana") as graph:
        with pytest.raises(PolicyDenied, match="beyond its view"):
            graph.embeddings.fill(resume=tmp_path / "vectors")
        with pytest.raises(PolicyDenied, match="beyond its view"):
            graph.embeddings.status()
        assert not (tmp_path / "vectors").exists()


def test_a_graph_without_row_rules_checks_no_view(tmp_path, monkeypatch):
    """A write without a policy, or with one that has no row rules, has no row security."""
    from omnigraph.write.mutation import Mutation

    seen = []
    prepare = Mutation.prepare
    monkeypatch.setattr(
        Mutation,
        "prepare",
        lambda self, view: (seen.append(self._security), prepare(self, view))[1],
    )
    rule = "{id: r, allow: {actors: {group: all}, actions: [change, schema_apply]}}"
    bundle = f"version: 2\ngroups: {{all: [ana]}}\nrules: [{rule}]\n"
    for number, policy in enumerate((None, Policy.parse(bundle))):
        location = tmp_path / f"{number}.omni"
        with Graph.init(location, SCHEMA, policy=policy, actor="ana", durability="os") as graph:
            run(graph, 'insert Tag { name: "x" }')
    assert seen == [None, None]


def test_a_missing_branch_is_missing(ana):
    with pytest.raises(NotFound):
        ana.branches.create("work/x", "work/absent")
    with pytest.raises(OmniGraphError):
        run(ana, 'insert Tag { name: "x" }', branch="work/absent")
