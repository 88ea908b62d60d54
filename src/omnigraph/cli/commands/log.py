"""``omnigraph log``: the history of a graph as a drawing."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from omnigraph.cli.commands.history import commit_json
from omnigraph.cli.options import add_switch, parse_time, whole_number
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import counts_json, counts_text, format_micros
from omnigraph.cli.output.commit_graph import (
    CommitNode,
    bridge_hidden,
    draw,
    reachable,
    topological_order,
)
from omnigraph.cli.output.report import show_paged
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.commits import Commit
    from omnigraph.commit.receipts import TableCounts


def add_log(parser: argparse.ArgumentParser) -> None:
    branches = parser.add_mutually_exclusive_group()
    branches.add_argument("--branch", metavar="B", help="history of this branch; default: main")
    add_switch(branches, "--all", "history of all branches")
    parser.add_argument("--actor", metavar="A", help="only commits of this actor")
    parser.add_argument("--type", metavar="T", help="only commits that changed rows of this type")
    parser.add_argument(
        "--since", metavar="TIME", help="only commits from this time on, such as 2026-01-31T12:00Z"
    )
    parser.add_argument("--until", metavar="TIME", help="only commits up to this time")
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="at most this many commits"
    )
    add_switch(parser, "--oneline", "one line per commit")
    add_switch(parser, "--stat", "count the rows changed by each commit")
    add_switch(parser, "--no-pager", "do not use a pager")


def run_log(arguments: argparse.Namespace) -> int:
    """Draws the commits of a branch, or of all branches, as a graph, newest first, with branch and
    tag names. On a terminal, a pager is used.
    """
    since = 0 if arguments.since is None else _micros(arguments.since)
    until = math.inf if arguments.until is None else _micros(arguments.until)
    with open_graph(arguments, "r") as (graph, _):
        branch = "main" if arguments.branch is None else arguments.branch
        log = _read_log(graph, None if arguments.all else branch)
        shown, rest = _select(graph, log, arguments, (since, until))
        if arguments.json:
            commits = [_commit_json(graph, log, commit_id, arguments.stat) for commit_id in shown]
            terminal.show_json({"commits": commits})
            return terminal.OK
        parents = bridge_hidden(log.parents, log.order, {*shown, *rest})
        nodes = (
            CommitNode(
                commit_id, parents[commit_id], tuple(_lines(graph, log, commit_id, arguments))
            )
            for commit_id in shown
        )
        show_paged(draw(nodes), is_wanted=not arguments.no_pager)
    return terminal.OK


# -- finding --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CommitLog:
    """Commits, each child before its parents, with the branches and tags that name them."""

    commits: Mapping[str, Commit]
    parents: Mapping[str, tuple[str, ...]]
    order: list[str]
    branches: Mapping[str, list[str]] = field(default_factory=dict)
    tags: Mapping[str, list[str]] = field(default_factory=dict)


def _read_log(graph: Graph, branch: str | None) -> _CommitLog:
    """The history of one branch, including merged commits, or of all branches."""
    heads = {name: graph.snapshot(name).commit_id for name in graph.branches.list()}
    commits: dict[str, Commit] = {}
    chosen = list(heads) if branch is None else [branch]
    for name in [*chosen, *heads]:
        # Other branches are read only for commits merged from them.
        if name in chosen or _has_unread_merges(commits):
            commits |= {commit.commit_id: commit for commit in graph.commits(name)}
    links = {commit_id: _parents(commit, commits) for commit_id, commit in commits.items()}
    starts = [head for name, head in heads.items() if head is not None and name in chosen]
    reached = reachable(links, starts)
    parents = {commit_id: links[commit_id] for commit_id in links if commit_id in reached}
    order = topological_order(parents, {name: commits[name].created_at for name in parents})
    tags = [(tag.commit_id, tag.name) for tag in graph.tags.list()]
    names = [(head, name) for name, head in heads.items() if head is not None]
    return _CommitLog(commits, parents, order, _group(names), _group(tags))


def _has_unread_merges(commits: Mapping[str, Commit]) -> bool:
    merged = {commit.merged_parent for commit in commits.values()} - {None}
    return not merged <= commits.keys()


def _parents(commit: Commit, commits: Mapping[str, Commit]) -> tuple[str, ...]:
    """The existing parents: a merged branch may be deleted."""
    links = (commit.parent, commit.merged_parent)
    return tuple(parent for parent in links if parent and parent in commits)


def _group(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for commit_id, name in pairs:
        names.setdefault(commit_id, []).append(name)
    return names


def _micros(time: str) -> float:
    """A time in microseconds since the epoch."""
    return int(parse_time(time).timestamp() * 1_000_000)


def _select(
    graph: Graph, log: _CommitLog, arguments: argparse.Namespace, times: tuple[float, float]
) -> tuple[list[str], list[str]]:
    """The commits to show, and the unexamined ones behind the limit."""
    if arguments.type is not None:
        types = [*graph.catalog.node_types, *graph.catalog.edge_types]
        if arguments.type not in types:
            message = f"there is no type '{arguments.type}' in the schema"
            raise InputError(message, hint=f"types: {', '.join(types)}")
    shown: list[str] = []
    for index, commit_id in enumerate(log.order):
        if len(shown) == arguments.limit:
            return shown, log.order[index:]
        commit = log.commits[commit_id]
        if (
            arguments.actor in (None, commit.actor)
            and times[0] <= commit.created_at <= times[1]
            and (arguments.type is None or _changed_type(graph, commit, arguments.type))
        ):
            shown.append(commit_id)
    return shown, []


def _changed_type(graph: Graph, commit: Commit, type_name: str) -> bool:
    """Whether rows of a type changed; nothing is read if the table versions are equal."""
    if commit.parent is None:
        return False
    from omnigraph.errors import HistoryGone

    if commit.group is not None:
        counts = _stat(graph, commit) or {}
        return any(key.partition(":")[2] == type_name for key in counts)
    keys = (f"node:{type_name}", f"edge:{type_name}")
    try:
        before = graph.snapshot(commit=commit.parent)
        after = graph.snapshot(commit=commit.commit_id)
        moved = [key for key in keys if before.tables.get(key) != after.tables.get(key)]
        if not moved:
            return False
        diff = before.diff(after, types=moved, summary=True)
    except HistoryGone:
        return False
    return not diff.is_empty


# -- showing --------------------------------------------------------------------------------------


def _stat(graph: Graph, commit: Commit) -> Mapping[str, TableCounts] | None:
    """The rows changed in each table; ``None`` if cleanup has removed the versions."""
    if commit.parent is None:
        return {}
    from omnigraph.errors import HistoryGone

    try:
        if commit.group is not None:
            return _member_stat(graph, commit)
        before = graph.snapshot(commit=commit.parent)
        tables = before.diff(graph.snapshot(commit=commit.commit_id), summary=True).tables
    except HistoryGone:
        return None
    return dict(sorted(tables.items()))


def _member_stat(graph: Graph, commit: Commit) -> Mapping[str, TableCounts]:
    """``_stat`` for a member of a group, which has few rows."""
    from omnigraph.commit.receipts import TableCounts

    keys: dict[str, list[str]] = {}
    for change in graph.changes.of_commit(commit.commit_id).changes:
        keys.setdefault(change.table_key, []).append(change.op.value)
    return {
        key: TableCounts(ops.count("insert"), ops.count("update"), ops.count("delete"))
        for key, ops in sorted(keys.items())
    }


def _commit_json(graph: Graph, log: _CommitLog, commit_id: str, with_stat: bool) -> dict[str, Any]:
    commit = log.commits[commit_id]
    document = {
        **commit_json(commit),
        "kind": commit.kind,
        "branches": log.branches.get(commit_id, []),
        "tags": log.tags.get(commit_id, []),
    }
    if not with_stat:
        return document
    stat = _stat(graph, commit)
    tables = None if stat is None else counts_json(stat)
    return {**document, "tables": tables}


def _lines(
    graph: Graph, log: _CommitLog, commit_id: str, arguments: argparse.Namespace
) -> Iterator[str]:
    """The lines beside one commit."""
    commit = log.commits[commit_id]
    names = [
        *(terminal.paint(name, "bold", "green") for name in log.branches.get(commit_id, [])),
        *(terminal.paint(f"tag: {name}", "cyan") for name in log.tags.get(commit_id, [])),
    ]
    title = terminal.paint(commit_id, "yellow") + (f" ({', '.join(names)})" if names else "")
    summary = f"{_summary(log, commit)}{f' by {commit.actor}' if commit.actor else ''}"
    time = terminal.paint(format_micros(commit.created_at), "dim")
    if arguments.oneline:
        yield f"{title} {time} {summary}"
    else:
        yield title
        yield f"{time}  {summary}"
    if arguments.stat:
        stat = _stat(graph, commit)
        if stat is None:
            yield "  its changes were removed by cleanup"
        for key, counts in (stat or {}).items():
            yield f"  {counts_text(key, counts)}"


def _summary(log: _CommitLog, commit: Commit) -> str:
    """The operation that created a commit."""
    kind = commit.kind or "write"
    if kind == "recovery" and commit.completes:
        return f"recovery of {', '.join(commit.completes)}"
    if commit.merged_parent is None:
        return kind
    merged = log.commits.get(commit.merged_parent)
    return f"{kind} of {commit.merged_parent if merged is None else merged.branch}"
