"""``omnigraph commit``: the commits of a graph, one by one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.cli.options import add_branch
from omnigraph.cli.output.change_lines import (
    add_filters,
    add_limit,
    change_text,
    check_limit,
    event_text,
    filters,
)
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.registry import Commands, family
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.commit.history import Commit
    from omnigraph.merge.feed import ChangePage

FILTERS = ("actor", "branch")


def add(commands: Commands) -> None:
    commit = family(commands, "commit", "show commits")
    parser = commit.add("list", run_list, "list commits, newest first", uri="positional")
    add_branch(parser)
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only commits with actor=… or branch=…",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most this many")
    parser = commit.add("show", run_show, "show one commit")
    parser.add_argument("id", metavar="ID", help="commit to show")
    parser = commit.add(
        "changes",
        run_changes,
        "show what a commit changed",
        description="Shows the changes of a commit against its first parent: the schema, then "
        "every row.",
    )
    parser.add_argument("id", metavar="ID", help="commit to show")
    add_limit(parser)
    parser.add_argument("--page-token", metavar="T", help="continue after an earlier page")
    add_filters(parser)


def run_list(arguments: argparse.Namespace) -> int:
    conditions = [_parse_filter(text) for text in arguments.filter]
    with open_graph(arguments, "r") as (graph, _):
        commits = graph.commits(arguments.branch)
    commits = [commit for commit in commits if _matches(commit, conditions)][: arguments.limit]
    document = {"commits": [commit_json(commit) for commit in commits]}
    return show_report(arguments, document, map(commit_line, commits))


def run_show(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        commit = graph.commit(arguments.id)
    document = commit_json(commit)
    lines = field_lines({**document, "manifest_branch": commit.branch})
    return show_report(arguments, document, lines)


def run_changes(arguments: argparse.Namespace) -> int:
    check_limit(arguments)
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
    return show_report(arguments, document, _page_lines(page, token))


def _page_lines(page: ChangePage, token: str | None) -> Iterator[str]:
    yield from map(event_text, page.schema_events)
    yield from map(change_text, page.changes)
    yield from field_lines({"next_page_token": token})


def commit_line(commit: Commit) -> str:
    """A commit as one line of a list."""
    actor = f" actor={commit.actor}" if commit.actor else ""
    return f"{commit.commit_id} branch={commit.branch} version={commit.version}{actor}"


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit as JSON."""
    document = {
        "graph_commit_id": commit.commit_id,
        "manifest_branch": None if commit.branch == "main" else commit.branch,
        "manifest_version": commit.version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
    }
    if not commit.completes:
        return document
    several = len(commit.completes) > 1
    return {**document, "completes": list(commit.completes) if several else commit.completes[0]}


def _parse_filter(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or key not in FILTERS:
        raise InputError(f"invalid filter '{text}'", hint="use actor=NAME or branch=NAME")
    return key, value


def _matches(commit: Commit, conditions: Sequence[tuple[str, str]]) -> bool:
    values = {"actor": commit.actor or "", "branch": commit.branch}
    return all(values[key] == value for key, value in conditions)
