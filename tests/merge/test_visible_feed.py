"""The change feed, blame and cursors of a reader who does not see all rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Change, ChangePage, Graph, Policy
from omnigraph.errors import EntityNotFound, HistoryGone, PolicyDenied, ViewChanged
from tests.commit.together import together

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Person { name: String @key  team: String?  age: I32? }
node Place { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge At: Person -> Place
"""
POLICY = """
version: 2
groups: {root: [root], staff: [ana, bo], guests: [gil]}
actors: {ana: {teams: [red, blue]}, bo: {teams: [red]}}
rules:
  - id: root-all
    allow:
      actors: {group: root}
      actions: [read, read_history, change, schema_apply, branch_create, branch_merge, admin]
  - id: staff-read
    allow: {actors: {group: staff}, actions: [read, read_history]}
  - id: guests-read
    allow: {actors: {group: guests}, actions: [read]}
rows:
  - {id: root, actors: {group: root}, types: ["*"]}
  - id: teams
    actors: {group: staff}
    types: [Person]
    branches: [main]
    where: team in $actor.teams
  - id: review
    actors: {group: staff}
    types: [Person]
    branches: [review]
    where: team = "red" or team = "green"
  - {id: links, actors: {group: staff}, types: [Knows, At, Place]}
  - {id: guest, actors: {group: guests}, types: [Person], where: team = "red"}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    policy = Policy.parse(POLICY)
    path = tmp_path / "g.omni"
    with Graph.init(path, SCHEMA, policy=policy, actor="root", durability="os") as graph:
        people = [person("Ada", "red"), person("Bob", "green"), person("Cy", "green")]
        edges = [knows("ab", "Ada", "Bob"), knows("bc", "Bob", "Cy"), at("Bob", "Rome")]
        graph.load([*people, {"type": "Place", "data": {"name": "Rome"}}, *edges])
        yield graph


def person(name: str, team: str | None, age: int | None = None) -> dict:
    return {"type": "Person", "data": {"name": name, "team": team, "age": age}}


def knows(name: str, source: str, target: str, since: int | None = None) -> dict:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": name, "since": since}}


def at(source: str, target: str) -> dict:
    return {"edge": "At", "from": source, "to": target, "data": {"id": f"{source}@{target}"}}


def move(graph: Graph, name: str, team: str, branch: str = "main") -> str:
    text = f'query q() {{ update Person set {{ team: "{team}" }} where name = "{name}" }}'
    return graph.mutate(text, branch=branch).commit_id


def operations(page: ChangePage) -> list[list[tuple[str, str]]]:
    return [[(change.op.value, change.id) for change in block.changes] for block in page.blocks]


def ids(changes: tuple[Change, ...]) -> list[tuple[str, str]]:
    return [(change.op.value, change.id) for change in changes]


def now(graph: Graph) -> str:
    return graph.changes.poll(start="now").cursor


# -- rows and edges -------------------------------------------------------------------------------


def test_a_row_that_becomes_visible_is_inserted_and_one_that_becomes_hidden_is_deleted(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    move(graph, "Cy", "blue")
    move(graph, "Ada", "green")
    page = ana.changes.poll(cursor=cursor)
    assert operations(page) == [[("insert", "Cy")], [("delete", "Ada")]]
    assert page.changes[0].before is None
    assert page.changes[0].after["team"] == "blue"
    assert (page.changes[1].before["team"], page.changes[1].after) == ("red", None)


def test_an_edge_comes_and_goes_with_its_ends(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    move(graph, "Bob", "red")
    page = ana.changes.poll(cursor=cursor)
    assert operations(page) == [[("insert", "Bob"), ("insert", "Bob@Rome"), ("insert", "ab")]]
    assert page.changes[2].endpoints == {"src": "Ada", "dst": "Bob"}
    move(graph, "Cy", "red")
    move(graph, "Bob", "green")
    page = ana.changes.poll(cursor=page.cursor)
    assert operations(page) == [
        [("insert", "Cy"), ("insert", "bc")],
        [("delete", "Bob"), ("delete", "Bob@Rome"), ("delete", "ab"), ("delete", "bc")],
    ]
    assert page.changes[-1].before["src"] == "Bob"


def test_edges_come_with_their_ends_whatever_the_filter(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    move(graph, "Bob", "red")
    only = ana.changes.poll(cursor=cursor, kinds=["edge"], types=["Knows"], ops=["insert"])
    assert operations(only) == [[("insert", "ab")]]
    assert not ana.changes.poll(cursor=cursor, ops=["delete"]).changes


def test_changes_of_hidden_rows_leave_no_trace_but_the_commit(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    graph.load([person("Bob", "green", 5), person("Dan", "grey"), knows("cd", "Cy", "Dan")])
    head = graph.load([person("Eve", "blue")]).commit_id
    page = ana.changes.poll(cursor=cursor, limit=1)
    assert operations(page) == [[("insert", "Eve")]]
    assert page.caught_up
    assert page.cursor == now(ana)
    assert ana.changes.of_commit(graph.commits()[1].commit_id).blocks == ()
    assert ids(ana.changes.of_commit(head).changes) == [("insert", "Eve")]


def test_pages_of_any_size_have_the_same_changes(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    hidden = [person(f"H{number}", "grey") for number in range(20)]
    graph.load([*hidden, person("Eve", "blue"), person("Flo", "red"), person("Bob", "red")])
    every = ids(ana.changes.poll(cursor=cursor).changes)
    assert len(every) == 5
    for size in (1, 2, 3):
        seen, page = [], ana.changes.poll(cursor=cursor, limit=size)
        seen += ids(page.changes)
        while not page.caught_up:
            page = ana.changes.poll(cursor=page.cursor, limit=size)
            seen += ids(page.changes)
        assert seen == every


def test_a_diff_judges_both_states(graph):
    before = graph.snapshot()
    move(graph, "Bob", "red")
    move(graph, "Ada", "grey")
    graph.load([person("Gus", "grey")])
    ana = graph.for_actor("ana")
    seen = ana.snapshot(at=before.commit_id)
    diff = seen.diff(ana.snapshot())
    assert ids(diff.changes) == [("delete", "Ada"), ("insert", "Bob"), ("insert", "Bob@Rome")]
    assert diff.stats["updates"] == 0
    assert ids(ana.snapshot().diff(seen).changes) == [
        ("insert", "Ada"),
        ("delete", "Bob"),
        ("delete", "Bob@Rome"),
    ]


def test_a_diff_with_the_snapshot_of_another_actor_shows_no_more(graph):
    before, ana = graph.snapshot(), graph.for_actor("ana")
    graph.load([person("Gus", "grey"), person("Hal", "red")])
    diff = ana.snapshot(at=before.commit_id).diff(graph.snapshot())
    assert ids(diff.changes) == [("insert", "Hal")]
    assert ids(before.diff(ana.snapshot()).changes) == [("insert", "Gus"), ("insert", "Hal")]


# -- members of a group ---------------------------------------------------------------------------


def test_in_a_group_an_edge_appears_after_its_ends_and_disappears_before_them(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    together(
        graph,
        lambda: graph.load([knows("ca", "Cy", "Ada")]),
        lambda: graph.load([person("Cy", "red")]),
        lambda: graph.load([person("Bob", "red")]),
    )
    page = ana.changes.poll(cursor=cursor)
    assert operations(page) == [
        [("insert", "Cy"), ("insert", "ca")],
        [("insert", "Bob"), ("insert", "Bob@Rome"), ("insert", "ab"), ("insert", "bc")],
    ]
    together(
        graph,
        lambda: graph.load([person("Bob", "grey")]),
        lambda: graph.load([person("Cy", "grey")]),
        lambda: graph.load([knows("bc", "Bob", "Cy", 7)]),
    )
    page = ana.changes.poll(cursor=page.cursor)
    assert operations(page) == [
        [("delete", "Bob"), ("delete", "Bob@Rome"), ("delete", "ab"), ("delete", "bc")],
        [("delete", "Cy"), ("delete", "ca")],
    ]


# -- cursors --------------------------------------------------------------------------------------


def reopened(graph: Graph, policy: str | None, actor: str = "ana") -> Graph:
    gate = None if policy is None else Policy.parse(policy)
    return Graph.open(graph.uri, "r", policy=gate, actor=actor)


@pytest.mark.parametrize("limit", [1, 1_000])
@pytest.mark.parametrize("is_caught_up", [True, False])
def test_a_cursor_of_another_view_is_refused(graph, limit, is_caught_up):
    cursor = now(graph.for_actor("ana"))
    if not is_caught_up:
        graph.load([person("Eve", "blue"), person("Flo", "red")])
        cursor = graph.for_actor("ana").changes.poll(cursor=cursor, limit=limit).cursor
    for policy, actor in (
        (POLICY.replace("[red, blue]", "[red]"), "ana"),
        (POLICY, "bo"),
        (POLICY, "root"),
        (None, "ana"),
    ):
        with reopened(graph, policy, actor) as other:
            with pytest.raises(ViewChanged, match="another view") as raised:
                other.changes.poll(cursor=cursor)
            assert "baseline" in raised.value.hint
            assert "oldest_cursor" not in raised.value.details
            baseline = other.changes.baseline()
            assert not other.changes.poll(cursor=baseline.cursor).changes
    whole = now(graph)
    for actor in ("ana", "bo", "gil"):
        with pytest.raises(ViewChanged):
            graph.for_actor(actor).changes.poll(cursor=whole)


def test_a_changed_policy_that_shows_the_same_keeps_its_cursors(graph):
    cursor = now(graph.for_actor("ana"))
    graph.load([person("Eve", "blue")])
    with reopened(graph, POLICY.replace("id: teams", "id: other")) as other:
        assert operations(other.changes.poll(cursor=cursor)) == [[("insert", "Eve")]]


def test_whoever_handles_removed_history_handles_a_changed_view(graph):
    cursor = now(graph)
    with pytest.raises(HistoryGone) as raised:
        graph.for_actor("ana").changes.poll(cursor=cursor)
    assert raised.value.code == "view_changed"


def test_a_whole_view_has_the_cursors_of_a_graph_without_a_policy(graph):
    with reopened(graph, None) as plain:
        assert now(plain) == now(graph)
        assert plain.changes.baseline().cursor == graph.changes.baseline().cursor


# -- branches -------------------------------------------------------------------------------------


def copied(graph: Graph, cursor: str | None, rows: set[str], limit: int = 2) -> set[str]:
    """The ids of a copy that follows a branch."""
    while True:
        page = graph.changes.poll("review", cursor, limit=limit)
        for change in page.changes:
            assert (change.id in rows) == (change.before is not None)
            rows = rows - {change.id} if change.after is None else rows | {change.id}
        cursor = page.cursor
        if page.caught_up:
            return rows


def rows_of(graph: Graph, branch: str) -> set[str]:
    snapshot = graph.snapshot(branch)
    names = [key.partition(":")[2] for key in snapshot.tables]
    return {row_id for name in names for row_id in snapshot.read(name)["id"].to_pylist()}


def test_a_branch_with_other_rules_is_followed_from_the_beginning_and_from_a_baseline(graph):
    ana = graph.for_actor("ana")
    graph.load([person("Dan", "blue")])
    graph.branches.create("review")
    baseline = ana.changes.baseline("review")
    start = rows_of(ana, "review")
    assert start == {"Ada", "Bob", "Cy", "Rome", "ab", "bc", "Bob@Rome"}
    assert "Dan" in rows_of(ana, "main")
    early = copied(ana, None, set())
    assert early == rows_of(ana, "main")
    half_way = now_on(ana, None)
    graph.load([person("Eve", "green"), person("Flo", "blue")], branch="review")
    move(graph, "Cy", "grey", "review")
    end = start - {"Cy", "bc"} | {"Eve"}
    assert rows_of(ana, "review") == end
    assert copied(ana, baseline.cursor, start) == end
    assert copied(ana, half_way, early) == end
    assert copied(ana, None, set()) == end
    assert copied(ana, None, set(), 1_000) == end
    own = [c.commit_id for c in graph.commits("review") if c.branch == "review"]
    assert ids(ana.changes.of_commit(own[-1]).changes) == [("insert", "Eve")]


def now_on(graph: Graph, cursor: str | None) -> str:
    page = graph.changes.poll("review", cursor, limit=1_000)
    assert page.caught_up
    return page.cursor


def test_a_merged_change_is_judged_on_the_branch_that_got_it(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    graph.branches.create("review")
    graph.load([person("Eve", "green"), person("Flo", "blue")], branch="review")
    graph.merge("review")
    assert operations(ana.changes.poll(cursor=cursor)) == [[("insert", "Flo")]]


# -- schema changes -------------------------------------------------------------------------------


def test_a_rule_whose_property_is_renamed_shows_nothing_any_more(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    graph.schema.apply(SCHEMA.replace("team: String?", 'crew: String? @rename_from("team")'))
    page = ana.changes.poll(cursor=cursor)
    assert [event.kind for event in page.schema_events] == ["rename_property"]
    assert operations(page) == [[("delete", "Ada")]]
    assert page.changes[0].before["crew"] == "red"
    graph.schema.apply(SCHEMA.replace("team: String?", 'team: String? @rename_from("crew")'))
    assert operations(ana.changes.poll(cursor=page.cursor)) == [[("insert", "Ada")]]
    first, newest = graph.commits()[2].commit_id, graph.commits()[1].commit_id
    diff = ana.snapshot(at=first).diff(ana.snapshot(at=newest))
    assert ids(diff.changes) == [("delete", "Ada")]


def test_a_schema_change_that_does_not_concern_the_rules_reads_no_rows(graph):
    ana = graph.for_actor("ana")
    cursor = now(ana)
    graph.schema.apply(SCHEMA.replace("age: I32?", "years: I64?"), allow_data_loss=True)
    page = ana.changes.poll(cursor=cursor)
    assert [event.kind for event in page.schema_events] == ["drop_property", "add_property"]
    assert page.changes == ()


# -- authors and blame ----------------------------------------------------------------------------


def test_authors_are_shown_to_those_who_may_read_the_history(graph):
    graph.tags.create("v1")
    ana, gil = graph.for_actor("ana"), graph.for_actor("gil")
    assert [commit.actor for commit in ana.commits()] == ["root", None]
    assert ana.commit(ana.commits()[0].commit_id).actor == "root"
    assert [tag.actor for tag in ana.tags.list()] == ["root"]
    assert [commit.actor for commit in gil.commits()] == [None, None]
    assert [c.commit_id for c in gil.commits()] == [c.commit_id for c in ana.commits()]
    assert [c.created_at for c in gil.commits()] == [c.created_at for c in ana.commits()]
    assert gil.commit(gil.commits()[0].commit_id).actor is None
    assert [(tag.name, tag.actor) for tag in gil.tags.list()] == [("v1", None)]
    assert [block.commit.actor for block in ana.changes.poll().blocks] == [None, "root"]
    assert {block.commit.actor for block in gil.changes.poll().blocks} == {None}
    with pytest.raises(PolicyDenied, match="read_history"):
        gil.changes.blame("Person", "Ada")


def test_blame_follows_what_is_visible(graph):
    ana = graph.for_actor("ana")
    for name, kind in (("Bob", "Person"), ("Nobody", "Person"), ("ab", "Knows")):
        with pytest.raises(EntityNotFound) as hidden:
            ana.changes.blame(kind, name)
        assert str(hidden.value) == f"there is no {kind} '{name}', now or in the kept history"
    loaded = graph.commits()[0].commit_id
    assert ana.changes.blame("Person", "Ada").commit.commit_id == loaded
    shown = move(graph, "Bob", "red")
    graph.load([person("Zoe", "grey")])
    for kind, name in (("Person", "Bob"), ("Knows", "ab"), ("At", "Bob@Rome")):
        actual = ana.changes.blame(kind, name)
        assert (actual.commit.commit_id, actual.op) == (shown, "write")
    assert graph.changes.blame("Knows", "ab").commit.commit_id == loaded
    gone = move(graph, "Bob", "grey")
    graph.load([person("Bob", "black")])
    for kind, name in (("Person", "Bob"), ("Knows", "ab")):
        actual = ana.changes.blame(kind, name)
        assert (actual.commit.commit_id, actual.op) == (gone, "delete")
    assert graph.changes.blame("Person", "Bob").op == "write"


def test_blame_names_no_origin_on_a_branch_where_the_row_is_hidden(graph):
    graph.branches.create("review")
    graph.load([person("Flo", "blue"), person("Gus", "red")], branch="review")
    graph.merge("review")
    ana = graph.for_actor("ana")
    assert ana.changes.blame("Person", "Gus").origin is not None
    assert ana.changes.blame("Person", "Flo").origin is None
    assert graph.changes.blame("Person", "Flo").origin is not None


def test_blame_of_an_edge_names_the_member_of_a_group_that_showed_it(graph):
    commits = together(
        graph,
        lambda: graph.load([person("Zoe", "red")]),
        lambda: graph.load([person("Bob", "red")]),
        lambda: graph.load([person("Yan", "red")]),
    )
    ana = graph.for_actor("ana")
    assert ana.changes.blame("Knows", "ab").commit.commit_id == commits[1].commit_id
