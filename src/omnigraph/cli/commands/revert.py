"""``omnigraph revert``, ``cherry-pick`` and ``blame``: single changes of the past."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.cli.commands.branch import add_resolve, resolution, show_merge
from omnigraph.cli.commands.commit import commit_json
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import moment_text
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import echo, opened

if TYPE_CHECKING:
    from omnigraph.commit.history import Commit
    from omnigraph.merge.run import MergeReport


def add(commands: Commands) -> None:
    """Declare the commands."""
    parser = command(
        commands,
        "revert",
        run_revert,
        Capability.ANY,
        "take a commit back by a new one",
        description="Takes back what a commit changed, by a new commit; what came after it stays. "
        "What was changed again since is a conflict.",
        writes=True,
    )
    _add_commit(parser, "whose changes are taken back", "where they are taken back")
    parser = command(
        commands,
        "cherry-pick",
        run_pick,
        Capability.ANY,
        "bring one commit into a branch",
        description="Makes what a commit of any branch changed part of a branch, by a new commit.",
        writes=True,
    )
    _add_commit(parser, "whose changes are taken over", "where they are brought")
    parser = command(
        commands,
        "blame",
        run_blame,
        Capability.ANY,
        "say which commit changed a row last",
        description="Says which commit, and so which actor, changed a node or an edge last, or "
        "deleted it; and from where a merge brought that.",
    )
    parser.add_argument("type", metavar="TYPE", help="the type, or a table such as node:Person")
    parser.add_argument("id", metavar="ID", help="the node or edge")
    add_uri(parser, positional=False)
    parser.add_argument("--branch", default="main", metavar="B", help="whose history")
    add_json(parser)


def _add_commit(parser: argparse.ArgumentParser, commit: str, branch: str) -> None:
    parser.add_argument("commit", metavar="COMMIT", help=f"the commit {commit}")
    add_uri(parser, positional=False)
    parser.add_argument("--branch", default="main", metavar="B", help=branch)
    add_resolve(parser)
    add_json(parser)


def run_revert(arguments: argparse.Namespace) -> int:
    """Take a commit back."""
    with opened(arguments, "r" if arguments.dry_run else "rw") as (graph, target):
        if not arguments.dry_run:
            echo(arguments, target)
        report = _done(arguments, graph.revert)
    return show_merge(arguments, report, target.actor, "reverted")


def run_pick(arguments: argparse.Namespace) -> int:
    """Take a commit over."""
    with opened(arguments, "r" if arguments.dry_run else "rw") as (graph, target):
        if not arguments.dry_run:
            echo(arguments, target)
        report = _done(arguments, graph.cherry_pick)
    return show_merge(arguments, report, target.actor, "picked")


def _done(arguments: argparse.Namespace, work: Callable[..., MergeReport]) -> MergeReport:
    """Do it, or only look; the conflicts are written out before they refuse anything."""
    how = resolution(arguments)
    with bar(arguments.label) as line:
        line.show("comparing")
        if arguments.dry_run or arguments.conflicts is not None:
            preview = work(arguments.commit, arguments.branch, resolve=how, dry_run=True)
            if arguments.conflicts is not None:
                preview.conflicts.write(arguments.conflicts)
            if arguments.dry_run:
                return preview
        return work(arguments.commit, arguments.branch, resolve=how)


def run_blame(arguments: argparse.Namespace) -> int:
    """Find who."""
    with opened(arguments, "r") as (graph, _):
        found = graph.changes.blame(arguments.type, arguments.id, arguments.branch)
    if arguments.json:
        terminal.show_json(
            {
                "type_name": arguments.type,
                "id": arguments.id,
                "op": found.op,
                "commit": commit_json(found.commit),
                "origin": None if found.origin is None else commit_json(found.origin),
            }
        )
        return terminal.OK
    verb = "deleted" if found.op == "delete" else "written"
    terminal.show(f"{arguments.type} '{arguments.id}' {verb} by {_named(found.commit)}")
    if found.origin is not None:
        terminal.show(f"  merged from {_named(found.origin)}")
    return terminal.OK


def _named(commit: Commit) -> str:
    actor = f" actor={commit.actor}" if commit.actor else ""
    name = terminal.paint(commit.commit_id, "yellow")
    return f"{name} branch={commit.branch}{actor} {moment_text(commit.created_at)}"
