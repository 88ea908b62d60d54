"""``omnigraph log``: the drawing on its own, and the history of a real graph through it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.cli.output.commit_graph import (
    CommitNode,
    bridge_hidden,
    draw,
    reachable,
    topological_order,
)
from omnigraph.cli.output.report import show_paged
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import InputError
from tests.cli.workspace import Workspace, assert_fails

pytestmark = pytest.mark.rotates(2)

# -- the drawing ----------------------------------------------------------------------------------


def dots(history: str) -> list[CommitNode]:
    """``"b a; a"``: commits with their parents, children first."""
    words = [item.split() for item in history.split(";")]
    return [CommitNode(name, tuple(parents), (f"={name}",)) for name, *parents in words]


DRAWINGS = {
    "a line": (
        "c b; b a; a",
        """
        * =c
        * =b
        * =a
        """,
    ),
    "one branch that was merged": (
        "m c w; w b; c b; b a; a",
        r"""
        *  =m
        |\
        | * =w
        * | =c
        |/
        * =b
        * =a
        """,
    ),
    "a branch that was merged twice": (
        "n m x; x w; m a w; w a; a",
        r"""
        *  =n
        |\
        | * =x
        * | =m
        |\|
        | * =w
        |/
        * =a
        """,
    ),
    "two branches that were merged into each other": (
        "w w1 m1; m m1 w1; w1 a; m1 a; a",
        r"""
        *  =w
        |\
        | | * =m
        | |/|
        |/| |
        | |/
        * | =w1
        | * =m1
        |/
        * =a
        """,
    ),
    "three branches": (
        "z c; y b; x a; c b; b a; a",
        """
        * =z
        | * =y
        | | * =x
        * | | =c
        |/ /
        * | =b
        |/
        * =a
        """,
    ),
    "a merge of a merge": (
        "n a r; r r1 f; a c; f r1; r1 c; c",
        r"""
        *  =n
        |\
        | *  =r
        | |\
        * | | =a
        | | * =f
        | |/
        | * =r1
        |/
        * =c
        """,
    ),
    "a line that crosses another": (
        "t p; u q; v p; q p; p",
        """
        * =t
        | * =u
        | | * =v
        | |/
        |/|
        | * =q
        |/
        * =p
        """,
    ),
    "a line that crosses many": (
        "t p; u q; v r; w p; r p; q p; p",
        """
        * =t
        | * =u
        | | * =v
        | | | * =w
        | |_|/
        |/| |
        | | * =r
        | |/
        |/|
        | * =q
        |/
        * =p
        """,
    ),
    "a second beginning": (
        "b; a",
        """
        * =b

        * =a
        """,
    ),
    "more than is shown": (
        "m c w; w v",
        r"""
        *  =m
        |\
        | * =w
        """,
    ),
}


@pytest.mark.parametrize(("history", "drawing"), DRAWINGS.values(), ids=list(DRAWINGS))
def test_a_history_is_drawn(history, drawing):
    assert "\n".join(draw(dots(history))) == dedent(drawing).strip("\n")


def test_texts_of_several_lines_stand_beside_the_lines_that_go_on():
    commits = [
        CommitNode("m", ("a", "b"), ("m", "merged", "more")),
        CommitNode("b", ("a",), ("b", "one")),
        CommitNode("a", (), ("a", "end")),
    ]
    assert list(draw(commits)) == [
        "*   m",
        "|\\  merged",
        "| | more",
        "| * b",
        "|/  one",
        "* a",
        "  end",
    ]


class DrawingReader:
    """Follows the lines of a drawing, as eyes do, to find the parents of every commit."""

    def __init__(self) -> None:
        self.parents: dict[str, set[str]] = defaultdict(set)
        self._flows: dict[int, set[str]] = {}
        self._landing: dict[int, set[str]] = {}
        """Lines that came from the right and either end here or cross to the next column."""

    def read(self, line: str) -> None:
        drawn, sign, name = line.partition("=")
        crossing = {
            column: actual
            for column, actual in self._landing.items()
            if not sign and drawn[2 * column - 1 : 2 * column + 1] == "/|" and column
        }
        for column, actual in self._landing.items():
            if column not in crossing:
                self._flows.setdefault(column, set()).update(actual)
        self._landing = {}
        if sign:
            # A line that is not drawn beside a commit has ended above it.
            self._flows = {
                column: flow
                for column, flow in self._flows.items()
                if drawn[2 * column : 2 * column + 1] in ("|", "*")
            }
            self._commit(drawn.index("*") // 2, name)
        else:
            self._move(drawn, crossing)

    def _commit(self, column: int, name: str) -> None:
        for child in self._flows.pop(column, set()):
            self.parents[child].add(name)
        self._flows[column] = {name}

    def _move(self, drawn: str, crossing: dict[int, set[str]]) -> None:
        flows: dict[int, set[str]] = defaultdict(set)
        for workspace, sign in enumerate(drawn):
            column = workspace // 2
            if sign == "|":
                flows[column] |= self._flows[column]
            elif sign == "\\":
                flows[column + 1] |= self._flows[column]
            elif sign == "/":
                actual = crossing.get(column + 1) or self._flows[column + 1]
                while workspace > 1 and drawn[workspace - 2] == "_":
                    workspace -= 2
                self._landing[workspace // 2] = set(actual)
        self._flows = dict(flows)


@st.composite
def histories(draw_one):
    """Up to a dozen commits, each with up to three of the later ones as parents."""
    count = draw_one(st.integers(1, 12))
    names = [f"c{number}" for number in range(count)]
    matches = []
    for at, name in enumerate(names):
        later = names[at + 1 :]
        parents = (
            draw_one(st.lists(st.sampled_from(later), max_size=3, unique=True)) if later else []
        )
        matches.append((name, tuple(parents)))
    return matches


@given(histories())
def test_a_drawing_says_who_comes_from_whom(history):
    reader = DrawingReader()
    for line in draw(CommitNode(name, parents, (f"={name}",)) for name, parents in history):
        reader.read(line)
    assert {name: reader.parents[name] for name, _ in history} == {
        name: set(parents) for name, parents in history
    }


def test_no_commit_comes_before_its_children_whatever_the_clocks_said():
    parents = {"a": (), "b": ("a",), "c": ("b",), "x": ("a",)}
    assert topological_order(parents, {"a": 9, "b": 1, "c": 2, "x": 3}) == ["x", "c", "b", "a"]


def test_what_is_not_reached_is_left_out():
    parents = {"a": (), "b": ("a", "gone"), "x": ("a",)}
    assert reachable(parents, ["b", "nowhere"]) == {"a", "b"}


def test_commits_that_are_left_out_are_bridged_by_the_shortest_ways():
    parents = {"m": ("c", "w"), "c": ("b",), "w": ("b",), "b": ("a",), "a": ()}
    order = ["m", "c", "w", "b", "a"]
    assert bridge_hidden(parents, order, {"m", "a"}) == {"m": ("a",), "a": ()}
    # By way of c, w is not needed to get to a.
    assert bridge_hidden(parents, order, {"m", "c", "a"}) == {"m": ("c",), "c": ("a",), "a": ()}
    assert bridge_hidden(parents, order, set(order)) == {name: parents[name] for name in order}


# -- the command ----------------------------------------------------------------------------------

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


def person(name: str, age: int | None = None) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A graph with a branch that was merged, one that was not, and a tag."""
    workspace = Workspace(tmp_path_factory.mktemp("log"))
    with Graph.init(workspace.directory / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([person("ana", 41), person("bo")], actor="ana")
        graph.tags.create("v1")
        graph.branches.create("work")
        graph.branches.create("other")
        graph.load([person("cy")], branch="work", actor="bo")
        graph.load([{"edge": "Knows", "from": "ana", "to": "bo"}], actor="ana")
        graph.load([person("dee")], branch="other", actor="cy")
        graph.merge("work", actor="ana")
        main = [commit.commit_id for commit in reversed(graph.commits())]
        workspace.names = {commit: f"v{number}" for number, commit in enumerate(main, 1)}
        workspace.names[graph.commits("work")[0].commit_id] = "w"
        workspace.names[graph.commits("other")[0].commit_id] = "o"
    return workspace


def drawn(workspace: Workspace, *options: str) -> str:
    """The drawing, with a short name for every commit and no times."""
    done = workspace.run("log", "g.omni", *options)
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "NOW", done.stdout)
    return re.sub(r"01[0-9A-Z]{24}", lambda actual: workspace.names[actual[0]], text)


def test_the_history_of_a_branch_is_drawn_with_what_was_merged(workspace):
    assert drawn(workspace) == dedent(
        r"""
        *  v4 (main)
        |\ NOW  merge of work by ana
        * | v3
        | | NOW  load by ana
        | * w (work)
        |/  NOW  load by bo
        * v2 (tag: v1)
        | NOW  load by ana
        * v1
          NOW  init
        """
    ).lstrip("\n")


def test_all_branches_in_one_line_for_each_commit(workspace):
    assert drawn(workspace, "--all", "--oneline", "--no-pager") == dedent(
        r"""
        *  v4 (main) NOW merge of work by ana
        |\
        | | * o (other) NOW load by cy
        * | | v3 NOW load by ana
        | |/
        |/|
        | * w (work) NOW load by bo
        |/
        * v2 (tag: v1) NOW load by ana
        * v1 NOW init
        """
    ).lstrip("\n")


def test_filters_and_counts(workspace):
    assert drawn(workspace, "--actor", "bo", "--oneline") == "* w (work) NOW load by bo\n"
    assert drawn(workspace, "--branch", "other", "--limit", "1", "--stat") == (
        "* o (other)\n| NOW  load by cy\n|   node:Person +1 ~0 -0\n"
    )
    assert drawn(workspace, "--type", "Knows", "--oneline") == "* v3 NOW load by ana\n"
    assert drawn(workspace, "--until", "2020-01-01") == ""
    assert drawn(workspace, "--since", datetime.now(UTC).isoformat()) == ""


def test_the_json_of_a_log(workspace):
    done = workspace.run("log", "--store", "g.omni", "--json", "--limit", "3", "--stat")
    commits = json.loads(done.stdout)["commits"]
    assert [commit["kind"] for commit in commits] == ["merge", "load", "load"]
    assert list(commits[0]) == [
        "graph_commit_id",
        "manifest_branch",
        "manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
        "kind",
        "branches",
        "tags",
        "tables",
    ]
    assert (commits[0]["branches"], commits[0]["tags"]) == (["main"], [])
    assert commits[0]["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}


def test_every_commit_says_what_made_it(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([person("ana")])
        first = graph.commits()[0].commit_id
        graph.mutate('query old() { update Person set { age: 9 } where name = "ana" }')
        graph.indexes.ensure()
        graph.revert(graph.commits()[1].commit_id)
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
        graph.branches.create("work")
        graph.load([person("bo")], branch="work")
        picked = graph.commits("work")[0].commit_id
        graph.cherry_pick(picked)
        graph.load([person("cy")])
        graph.maintenance.optimize()
        graph.merge("work", resolve="ours")
        # As another program writes them.
        intent = CommitIntent(new_ulid(), None, now_micros())
        store = graph._handle.store
        store.publisher.publish(store.manifest(None), Publication({}, commit=intent))
        kinds = [commit.kind for commit in reversed(graph.commits())]
        assert graph.commit(first).kind == "load"
    assert kinds == [
        "init",
        "load",
        "mutation",
        "indexes",
        "revert",
        "schema",
        "cherry-pick",
        "load",
        "optimize",
        "merge",
        None,
    ]
    newest = Workspace(tmp_path).run("log", "g.omni", "--oneline", "--limit", "1").stdout
    assert newest.endswith(" UTC write\n")


def test_wrong_usage_of_log_exits_2(workspace):
    both = workspace.run("log", "g.omni", "--branch", "main", "--all")
    assert (both.returncode, both.stdout) == (2, "")
    none = workspace.run("log", "g.omni", "--limit", "0")
    assert (none.returncode, none.stdout) == (2, "")
    assert "--limit: must be at least 1" in none.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("g.omni", "--branch", "nowhere"), "nowhere"),
        (("g.omni", "--type", "Cat"), "there is no type 'Cat'"),
        (("g.omni", "--since", "yesterday"), "invalid time 'yesterday'"),
        (("nothing.omni",), "nothing.omni"),
    ],
)
def test_a_log_that_fails_says_why(workspace, arguments, text):
    assert_fails(workspace.run("log", *arguments), text)


def on_a_terminal(workspace: Workspace, *arguments: str, **environ: str) -> str:
    """What the command shows where somebody sits."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli", *arguments],
        cwd=workspace.directory,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "OMNIGRAPH_HOME": str(workspace.directory), "TERM": "xterm", **environ},
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := _read(controller):
            shown += piece
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    return shown.decode("utf-8").replace("\r\n", "\n")


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 1 << 16)
    except OSError:
        # Linux says so when nobody has the other end any more.
        return b""


def test_on_a_terminal_there_are_colours_and_a_pager(workspace):
    log = ("log", "g.omni", "--oneline")
    paged = on_a_terminal(workspace, *log, PAGER="sed -e s/^/page:/", NO_COLOR="")
    plain = workspace.run(*log).stdout
    assert [line.startswith("page:") for line in paged.splitlines()] == [True] * 7
    assert "\x1b[33m" in paged
    assert re.sub(r"\x1b\[[0-9;]*m|page:", "", paged) == plain


@pytest.fixture
def seated(monkeypatch):
    """Somebody sits at the terminal."""
    monkeypatch.setattr("omnigraph.cli.output.terminal.is_live", lambda stream=None: True)
    return monkeypatch


def test_without_a_pager_lines_are_shown_as_they_are(seated, capfd):
    show_paged(["one", "two"], is_wanted=False)
    assert capfd.readouterr().out == "one\ntwo\n"
    seated.setenv("PAGER", "no-such-pager -x")
    show_paged(["one"])
    actual = capfd.readouterr()
    assert actual.out == "one\n"
    assert actual.err == "warning: the pager 'no-such-pager' cannot be started\n"


def test_a_pager_that_leaves_early_ends_the_work(seated, capfd):
    seated.setenv("PAGER", "head -n 1")
    seen = []

    def lines():
        for number in range(1_000_000):
            seen.append(number)
            yield f"line {number}"

    show_paged(lines())
    assert capfd.readouterr().out == "line 0\n"
    assert len(seen) < 1_000_000


def test_the_pager_is_waited_for_when_the_work_fails(seated, capfd):
    seated.setenv("PAGER", "cat")

    def lines():
        yield "first"
        raise InputError("gone")

    with pytest.raises(InputError, match="gone"):
        show_paged(lines())
    assert capfd.readouterr().out == "first\n"


def test_the_command_as_a_process(workspace):
    """Results on stdout, nothing else."""
    done = workspace.process("log", "g.omni", "--oneline", PAGER="false")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == workspace.run("log", "g.omni", "--oneline").stdout
