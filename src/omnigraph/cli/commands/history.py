"""``omnigraph commit``, ``diff``, ``changes`` and ``blame``: changes and their commits."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import (
    add_branch,
    add_json,
    add_repeatable,
    add_switch,
    seconds,
    whole_number,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import (
    add_filters,
    add_limit,
    change_text,
    counts_json,
    counts_text,
    event_text,
    filters,
    format_micros,
)
from omnigraph.cli.output.report import field_lines, show_paged, show_report
from omnigraph.cli.targets import find_snapshot, open_graph
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.commits import Commit
    from omnigraph.merge.diff import Diff
    from omnigraph.merge.pages import ChangePage

SHORTEST, LONGEST = 0.1, 3_600.0
"""Limits of the polling interval in seconds."""


def add_commit_list(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)
    add_repeatable(parser, "--filter", "KEY=VALUE", "only commits with actor=… or branch=…")
    parser.add_argument("--limit", type=whole_number(1), metavar="N", help="at most this many")


def add_commit_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="commit to show")


def add_commit_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="commit to show")
    add_limit(parser)
    parser.add_argument("--page-token", metavar="T", help="continue after an earlier page")
    add_filters(parser)


def run_commit_list(arguments: argparse.Namespace) -> int:
    conditions = [text.split("=", 1) for text in arguments.filter]
    for text, (key, *value) in zip(arguments.filter, conditions, strict=True):
        if not value or key not in ("actor", "branch"):
            raise InputError(f"invalid filter '{text}'", hint="use actor=NAME or branch=NAME")
    with open_graph(arguments, "r") as (graph, _):
        commits = [
            commit
            for commit in graph.commits(arguments.branch)
            if all((getattr(commit, key) or "") == value for key, value in conditions)
        ][: arguments.limit]
    document = {"commits": [commit_json(commit) for commit in commits]}
    return show_report(arguments, document, map(commit_line, commits))


def run_commit_show(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        commit = graph.commit(arguments.id)
    document = commit_json(commit)
    shown = {**document, "manifest_branch": commit.branch}
    if commit.group is not None:
        index, size = commit.group.index, commit.group.size
        shown["group"] = f"{index + 1} of {size}, ends with {commit.group.id}"
    lines = field_lines(shown)
    return show_report(arguments, document, lines)


def run_commit_changes(arguments: argparse.Namespace) -> int:
    """Shows the changes of a commit against its first parent: the schema, then every row."""
    with open_graph(arguments, "r") as (graph, _):
        commit = graph.commit(arguments.id)
        page = graph.changes.of_commit(
            arguments.id, arguments.page_token, limit=arguments.limit, **filters(arguments)
        )
    token = None if page.caught_up else page.cursor
    document = {
        "cause": commit_json(commit),
        "schema_events": [event.to_json() for event in page.schema_events],
        "changes": [change.to_json() for change in page.changes],
        "next_page_token": token,
    }
    rows = [*map(event_text, page.schema_events), *map(change_text, page.changes)]
    return show_report(arguments, document, [*rows, *field_lines({"next_page_token": token})])


def commit_line(commit: Commit) -> str:
    """A commit as one line of a list."""
    actor = f" actor={commit.actor}" if commit.actor else ""
    return f"{commit.commit_id} branch={commit.branch} version={commit.version}{actor}"


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit as JSON."""
    document: dict[str, Any] = {
        "graph_commit_id": commit.commit_id,
        "manifest_branch": None if commit.branch == "main" else commit.branch,
        "manifest_version": commit.version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
    }
    if commit.group is not None:
        document |= {"group": asdict(commit.group)}
    if not commit.completes:
        return document
    several = len(commit.completes) > 1
    return {**document, "completes": list(commit.completes) if several else commit.completes[0]}


def add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE", help="a branch, tag or commit")
    parser.add_argument("after", nargs="?", default="main", metavar="AFTER", help="another one")
    add_filters(parser)
    add_switch(parser, "--summary", "only show counts")
    add_switch(parser, "--exit-code", "exit with 1 if there are differences")
    add_switch(parser, "--no-pager", "do not use a pager")


def run_diff(arguments: argparse.Namespace) -> int:
    """Shows the net difference between two states, each a branch, a tag or a commit: schema
    changes, row counts per type, then every row.
    """
    with open_graph(arguments, "r") as (graph, _):
        before, after = (find_snapshot(graph, name) for name in (arguments.before, arguments.after))
        diff = before.diff(after, summary=arguments.summary, **filters(arguments))
    if arguments.json:
        terminal.show_json(
            {
                "from": {"ref": arguments.before, "manifest_version": diff.from_version},
                "to": {
                    "ref": arguments.after,
                    "branch": diff.branch,
                    "manifest_version": diff.to_version,
                },
                "stats": diff.stats,
                "tables": counts_json(diff.tables),
                "schema_events": [event.to_json() for event in diff.schema_events],
                "changes": [change.to_json() for change in diff.changes],
            }
        )
    else:
        show_paged(_diff_lines(diff), is_wanted=not arguments.no_pager)
    return terminal.FAILURE if arguments.exit_code and not diff.is_empty else terminal.OK


def _diff_lines(diff: Diff) -> Iterator[str]:
    if diff.is_empty:
        yield "no differences"
    yield from map(event_text, diff.schema_events)
    for key, counts in diff.tables.items():
        yield counts_text(key, counts)
    if diff.changes:
        yield ""
    yield from map(change_text, diff.changes)


def add_changes_poll(parser: argparse.ArgumentParser) -> None:
    add_json(parser, "print one JSON document; with --follow, one line per commit")
    add_branch(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--cursor", metavar="C", help="continue after an earlier page")
    start.add_argument(
        "--start",
        metavar="WHERE",
        help="start without a cursor: now, after:<commit> or beginning; default: beginning",
    )
    add_limit(parser)
    add_filters(parser)
    add_switch(parser, "--follow", "wait for more until interrupted")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help=f"how long --follow waits for a commit at once, from {SHORTEST:g} to {LONGEST:g}",
    )


def add_changes_baseline(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)
    parser.add_argument("--out", required=True, metavar="PATH", help="file to write")


def run_changes_poll(arguments: argparse.Namespace) -> int:
    """Shows the next changes of a branch in commit order, and the cursor to continue from. With
    --follow it waits for more until interrupted.
    """
    if not SHORTEST <= arguments.interval <= LONGEST:
        raise UsageError(f"--interval must be from {SHORTEST:g} to {LONGEST:g} seconds")
    with open_graph(arguments, "r") as (graph, _):
        page = _poll(graph, arguments, arguments.cursor)
        if arguments.follow:
            _follow(graph, arguments, page)
    document = {
        "blocks": [block.to_json() for block in page.blocks],
        "cursor": page.cursor,
        "caught_up": page.caught_up,
    }
    state = "caught up" if page.caught_up else "there is more"
    return show_report(arguments, document, [*_block_lines(page), f"cursor: {page.cursor}", state])


def _poll(
    graph: Graph, arguments: argparse.Namespace, cursor: str | None, wait: float = 0.0
) -> ChangePage:
    return graph.changes.poll(
        arguments.branch,
        cursor,
        start=arguments.start or "beginning",
        limit=arguments.limit,
        wait=wait,
        **filters(arguments),
    )


def _follow(graph: Graph, arguments: argparse.Namespace, page: ChangePage) -> None:
    """Show existing changes, then new ones, until interrupted."""
    while True:
        if arguments.json:
            for block in page.blocks:
                line = json.dumps({**block.to_json(), "cursor": block.cursor}, ensure_ascii=False)
                terminal.show_json_text(f"{line}\n")
        else:
            terminal.show_lines(_block_lines(page))
        terminal.flush()
        # A commit ends the wait, so that it is shown at once.
        page = _poll(graph, arguments, page.cursor, arguments.interval)


def _block_lines(page: ChangePage) -> Iterator[str]:
    for block in page.blocks:
        commit = block.commit
        actor = f" by {commit.actor}" if commit.actor else ""
        name = terminal.paint(commit.commit_id, "yellow")
        yield f"commit {name} {format_micros(commit.created_at)}{actor}"
        for event in block.schema_events:
            yield f"  {event_text(event)}"
        for change in block.changes:
            yield f"  {change_text(change)}"


def run_changes_baseline(arguments: argparse.Namespace) -> int:
    """Exports the head of a branch like `export`, with one more line at the end: the cursor for
    later changes. A file without that line is incomplete.
    """
    with open_graph(arguments, "r") as (graph, target):
        baseline = graph.changes.baseline(arguments.branch, arguments.out)
    document = {
        "uri": target.uri,
        "branch": arguments.branch,
        "out": arguments.out,
        "records": baseline.records,
        "snapshot_commit_id": baseline.snapshot.commit_id,
        "resume_cursor": baseline.cursor,
    }
    lines = [
        f"wrote {baseline.records} records of branch {arguments.branch} to {arguments.out}",
        f"cursor: {baseline.cursor}",
    ]
    return show_report(arguments, document, lines)


def add_blame(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="a type, or a table such as node:Person")
    parser.add_argument("id", metavar="ID", help="id of the node or edge")
    add_branch(parser)


def run_blame(arguments: argparse.Namespace) -> int:
    """Shows which commit, and so which actor, last changed or deleted a node or an edge, and the
    branch it was merged from.
    """
    with open_graph(arguments, "r") as (graph, _):
        blame = graph.changes.blame(arguments.type, arguments.id, arguments.branch)
    document = {
        "type_name": arguments.type,
        "id": arguments.id,
        "op": blame.op,
        "commit": commit_json(blame.commit),
        "origin": None if blame.origin is None else commit_json(blame.origin),
    }
    verb = "deleted" if blame.op == "delete" else "written"
    lines = [f"{arguments.type} '{arguments.id}' {verb} by {_commit_text(blame.commit)}"]
    if blame.origin is not None:
        lines.append(f"  merged from {_commit_text(blame.origin)}")
    return show_report(arguments, document, lines)


def _commit_text(commit: Commit) -> str:
    actor = f" actor={commit.actor}" if commit.actor else ""
    name = terminal.paint(commit.commit_id, "yellow")
    return f"{name} branch={commit.branch}{actor} {format_micros(commit.created_at)}"
