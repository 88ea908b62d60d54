"""``omnigraph log``: the history of a graph, drawn."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.cli.commands.commit import commit_json
from omnigraph.cli.commands.query import parse_moment
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import counts_json, counts_text, moment_text
from omnigraph.cli.output.commit_graph import Dot, bridged, draw, in_order, reachable
from omnigraph.cli.output.pager import show_paged
from omnigraph.cli.registry import (
    Capability,
    Commands,
    UsageError,
    add_json,
    add_uri,
    command,
)
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.history import Commit
    from omnigraph.commit.receipts import TableCounts


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "log",
        run,
        Capability.ANY,
        "draw the history of commits",
        description="Draws the commits of a branch, or of all, as a graph, the newest first, with "
        "the branches and tags that name them. On a terminal it goes through a pager.",
    )
    add_uri(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--branch", metavar="B", help="whose history; main if not given")
    which.add_argument("--all", action="store_true", help="the history of every branch")
    parser.add_argument("--actor", metavar="A", help="only commits of this actor")
    parser.add_argument("--type", metavar="T", help="only commits that changed rows of this type")
    parser.add_argument(
        "--since", metavar="MOMENT", help="only commits from then on, such as 2026-01-31T12:00Z"
    )
    parser.add_argument("--until", metavar="MOMENT", help="only commits until then")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many commits")
    parser.add_argument("--oneline", action="store_true", help="one line for each commit")
    parser.add_argument(
        "--stat", action="store_true", help="count the rows that each commit changed"
    )
    parser.add_argument("--no-pager", action="store_true", help="print everything at once")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Find the commits and draw them."""
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError("--limit must be at least 1")
    passes = _Filter.of(arguments)
    with opened(arguments, "r") as (graph, _):
        branch = "main" if arguments.branch is None else arguments.branch
        history = _look(graph, None if arguments.all else branch)
        picked, rest = _picked(graph, history, passes, arguments.limit)
        if arguments.json:
            commits = [_told(graph, history, each, arguments.stat) for each in picked]
            terminal.show_json({"commits": commits})
            return terminal.OK
        parents = bridged(history.parents, history.order, {*picked, *rest})
        dots = (
            Dot(each, parents[each], tuple(_text(graph, history, each, arguments)))
            for each in picked
        )
        show_paged(draw(dots), is_wanted=not arguments.no_pager)
    return terminal.OK


# -- finding --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """The commits that are looked at, every child before its parents, and what they are called."""

    commits: Mapping[str, Commit]
    parents: Mapping[str, tuple[str, ...]]
    order: list[str]
    branches: Mapping[str, list[str]] = field(default_factory=dict)
    tags: Mapping[str, list[str]] = field(default_factory=dict)


def _look(graph: Graph, branch: str | None) -> _Known:
    """The history of a branch with what was merged into it, or that of all branches."""
    heads = {name: graph.snapshot(name).commit_id for name in graph.branches.list()}
    commits: dict[str, Commit] = {}
    chosen = list(heads) if branch is None else [branch]
    for name in [*chosen, *heads]:
        # Others are only read for commits that were merged from them.
        if name in chosen or _missing(commits):
            commits |= {commit.commit_id: commit for commit in graph.commits(name)}
    links = {each: _parents(commit, commits) for each, commit in commits.items()}
    starts = [head for name, head in heads.items() if head is not None and name in chosen]
    found = reachable(links, starts)
    parents = {each: links[each] for each in links if each in found}
    order = in_order(parents, {each: commits[each].created_at for each in parents})
    tags = [(tag.commit_id, tag.name) for tag in graph.tags.list()]
    names = [(head, name) for name, head in heads.items() if head is not None]
    return _Known(commits, parents, order, _grouped(names), _grouped(tags))


def _missing(commits: Mapping[str, Commit]) -> bool:
    merged = {commit.merged_parent for commit in commits.values()} - {None}
    return not merged <= commits.keys()


def _parents(commit: Commit, known: Mapping[str, Commit]) -> tuple[str, ...]:
    """The parents that there still are: a merged branch may be gone."""
    return tuple(each for each in (commit.parent, commit.merged_parent) if each in known and each)


def _grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for commit, name in pairs:
        found.setdefault(commit, []).append(name)
    return found


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which commits are wanted."""

    actor: str | None
    type_name: str | None
    since: int | None
    until: int | None

    @staticmethod
    def of(arguments: argparse.Namespace) -> _Filter:
        return _Filter(
            arguments.actor,
            arguments.type,
            _micros(arguments.since),
            _micros(arguments.until),
        )

    def takes(self, graph: Graph, commit: Commit) -> bool:
        if self.actor is not None and commit.actor != self.actor:
            return False
        if self.since is not None and commit.created_at < self.since:
            return False
        if self.until is not None and commit.created_at > self.until:
            return False
        return self.type_name is None or _touches(graph, commit, self.type_name)


def _micros(moment: str | None) -> int | None:
    return None if moment is None else int(parse_moment(moment).timestamp() * 1_000_000)


def _picked(
    graph: Graph, history: _Known, passes: _Filter, limit: int | None
) -> tuple[list[str], list[str]]:
    """The commits to show, and those behind them that nobody asked about any more."""
    if passes.type_name is not None:
        _check_type(graph, passes.type_name)
    picked: list[str] = []
    for at, each in enumerate(history.order):
        if len(picked) == limit:
            return picked, history.order[at:]
        if passes.takes(graph, history.commits[each]):
            picked.append(each)
    return picked, []


def _check_type(graph: Graph, name: str) -> None:
    known = [*graph.catalog.node_types, *graph.catalog.edge_types]
    if name not in known:
        raise InputError(
            f"there is no type '{name}' in the schema", hint=f"there is {', '.join(known)}"
        )


def _touches(graph: Graph, commit: Commit, type_name: str) -> bool:
    """Whether rows of a type changed; its versions tell without reading, when they did not."""
    if commit.parent is None:
        return False
    from omnigraph.errors import HistoryGone

    keys = (f"node:{type_name}", f"edge:{type_name}")
    try:
        before, after = (graph.snapshot(commit=each) for each in (commit.parent, commit.commit_id))
        moved = [key for key in keys if before.tables.get(key) != after.tables.get(key)]
        if not moved:
            return False
        found = before.diff(after, types=moved, summary=True)
    except HistoryGone:
        return False
    return not found.is_empty


# -- showing --------------------------------------------------------------------------------------


def _stat(graph: Graph, commit: Commit) -> Mapping[str, TableCounts] | None:
    """How many rows a commit changed in each table; none when cleanup has removed that."""
    if commit.parent is None:
        return {}
    from omnigraph.errors import HistoryGone

    try:
        before, after = (graph.snapshot(commit=each) for each in (commit.parent, commit.commit_id))
        found = before.diff(after, summary=True).tables
    except HistoryGone:
        return None
    return dict(sorted(found.items()))


def _told(graph: Graph, history: _Known, commit_id: str, with_stat: bool) -> dict[str, Any]:
    commit = history.commits[commit_id]
    told = {
        **commit_json(commit),
        "kind": commit.kind,
        "branches": history.branches.get(commit_id, []),
        "tags": history.tags.get(commit_id, []),
    }
    if not with_stat:
        return told
    counts = _stat(graph, commit)
    tables = None if counts is None else {key: counts_json(each) for key, each in counts.items()}
    return {**told, "tables": tables}


def _text(
    graph: Graph, history: _Known, commit_id: str, arguments: argparse.Namespace
) -> Iterator[str]:
    """The lines beside one commit."""
    commit = history.commits[commit_id]
    names = [
        *(terminal.paint(each, "bold", "green") for each in history.branches.get(commit_id, [])),
        *(terminal.paint(f"tag: {each}", "cyan") for each in history.tags.get(commit_id, [])),
    ]
    named = f" ({', '.join(names)})" if names else ""
    title = f"{terminal.paint(commit_id, 'yellow')}{named}"
    what = f"{_what(history, commit)}{f' by {commit.actor}' if commit.actor else ''}"
    moment = moment_text(commit.created_at)
    if arguments.oneline:
        yield f"{title} {terminal.paint(moment, 'dim')} {what}"
    else:
        yield title
        yield f"{terminal.paint(moment, 'dim')}  {what}"
    if arguments.stat:
        counts = _stat(graph, commit)
        if counts is None:
            yield "  its changes were removed by cleanup"
        for key, each in (counts or {}).items():
            yield f"  {counts_text(key, each)}"


def _what(history: _Known, commit: Commit) -> str:
    """What made a commit, in words."""
    kind = commit.kind or "write"
    if kind == "recovery" and commit.completes:
        return f"recovery of {', '.join(commit.completes)}"
    if commit.merged_parent is None:
        return kind
    merged = history.commits.get(commit.merged_parent)
    return f"{kind} of {commit.merged_parent if merged is None else merged.branch}"
