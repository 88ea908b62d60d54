"""``omnigraph commit``: the commits of a graph, one by one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import (
    add_filters,
    add_limit,
    change_text,
    check_limit,
    event_text,
    filters,
)
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command, family
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.commit.history import Commit

FILTERS = ("actor", "branch")


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "commit", "look at commits")
    parser = command(
        forms, "list", run_list, Capability.ANY, "list commits, the newest first", label="commit"
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="whose history")
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only commits with actor=… or branch=…",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many")
    add_json(parser)
    parser = command(forms, "show", run_show, Capability.ANY, "show one commit", label="commit")
    add_uri(parser, positional=False)
    parser.add_argument("id", metavar="ID", help="the commit")
    add_json(parser)
    parser = command(
        forms,
        "changes",
        run_changes,
        Capability.ANY,
        "show what a commit changed",
        description="Shows what a commit changed against its first parent: the schema, then row by "
        "row.",
        label="commit",
    )
    add_uri(parser, positional=False)
    parser.add_argument("id", metavar="ID", help="the commit")
    add_limit(parser)
    parser.add_argument("--page-token", metavar="T", help="go on where an earlier page ended")
    add_filters(parser)
    add_json(parser)


def run_list(arguments: argparse.Namespace) -> int:
    """List, newest first."""
    wanted = [_filter(text) for text in arguments.filter]
    with opened(arguments, "r") as (graph, _):
        found = graph.commits(arguments.branch)
    found = [commit for commit in found if _passes(commit, wanted)][: arguments.limit]
    if arguments.json:
        terminal.show_json({"commits": [commit_json(commit) for commit in found]})
        return terminal.OK
    for commit in found:
        terminal.show(commit_line(commit))
    return terminal.OK


def run_show(arguments: argparse.Namespace) -> int:
    """Show one."""
    with opened(arguments, "r") as (graph, _):
        told = commit_json(graph.commit(arguments.id))
    if arguments.json:
        terminal.show_json(told)
        return terminal.OK
    for key, value in told.items():
        if key == "manifest_branch":
            value = value or "main"
        if value is not None:
            terminal.show(f"{key}: {value}")
    return terminal.OK


def run_changes(arguments: argparse.Namespace) -> int:
    """Show what one changed."""
    check_limit(arguments)
    with opened(arguments, "r") as (graph, _):
        commit = graph.commit(arguments.id)
        page = graph.changes.of_commit(
            arguments.id, arguments.page_token, limit=arguments.limit, **filters(arguments)
        )
    token = None if page.caught_up else page.cursor
    if arguments.json:
        terminal.show_json(
            {
                "cause": commit_json(commit),
                "schema_events": [event.to_json() for event in page.schema_events],
                "changes": [change.to_json() for change in page.changes],
                "next_page_token": token,
            }
        )
        return terminal.OK
    for event in page.schema_events:
        terminal.show(event_text(event))
    for change in page.changes:
        terminal.show(change_text(change))
    if token is not None:
        terminal.show(f"next_page_token: {token}")
    return terminal.OK


def commit_line(commit: Commit) -> str:
    """A commit in a list."""
    actor = f" actor={commit.actor}" if commit.actor else ""
    return f"{commit.commit_id} branch={commit.branch} version={commit.version}{actor}"


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit as scripts read it."""
    told = {
        "graph_commit_id": commit.commit_id,
        "manifest_branch": None if commit.branch == "main" else commit.branch,
        "manifest_version": commit.version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
    }
    if not commit.completes:
        return told
    several = len(commit.completes) > 1
    return {**told, "completes": list(commit.completes) if several else commit.completes[0]}


def _filter(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or key not in FILTERS:
        raise InputError(f"'{text}' is no filter", hint="use actor=NAME or branch=NAME")
    return key, value


def _passes(commit: Commit, wanted: Sequence[tuple[str, str]]) -> bool:
    facts = {"actor": commit.actor or "", "branch": commit.branch}
    return all(facts[key] == value for key, value in wanted)
