"""``omnigraph revert``, ``cherry-pick`` and ``blame``: single commits of the history."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.cli.commands.branch import add_resolve, merge_by
from omnigraph.cli.commands.commit import commit_json
from omnigraph.cli.options import add_branch, add_json, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import format_micros
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph

if TYPE_CHECKING:
    from omnigraph.commit.history import Commit


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "revert",
        run_revert,
        Capability.ANY,
        "undo a commit with a new one",
        description="Undoes the changes of a commit with a new commit; later changes stay. A row "
        "that was changed again since is a conflict.",
        writes=True,
    )
    _add_commit(parser, "commit to undo", "branch to change")
    parser = command(
        commands,
        "cherry-pick",
        run_pick,
        Capability.ANY,
        "apply one commit to a branch",
        description="Applies the changes of a commit of any branch to a branch, in a new commit.",
        writes=True,
    )
    _add_commit(parser, "commit to apply", "branch to change")
    parser = command(
        commands,
        "blame",
        run_blame,
        Capability.ANY,
        "show which commit last changed a row",
        description="Shows which commit, and so which actor, last changed or deleted a node or an "
        "edge, and the branch it was merged from.",
    )
    parser.add_argument("type", metavar="TYPE", help="a type, or a table such as node:Person")
    parser.add_argument("id", metavar="ID", help="id of the node or edge")
    add_uri(parser, positional=False)
    add_branch(parser)
    add_json(parser)


def _add_commit(parser: argparse.ArgumentParser, commit: str, branch: str) -> None:
    parser.add_argument("commit", metavar="COMMIT", help=commit)
    add_uri(parser, positional=False)
    add_branch(parser, branch)
    add_resolve(parser)
    add_json(parser)


def run_revert(arguments: argparse.Namespace) -> int:
    return merge_by(
        arguments,
        "revert",
        "reverted",
        lambda graph: partial(graph.revert, arguments.commit, arguments.branch),
    )


def run_pick(arguments: argparse.Namespace) -> int:
    return merge_by(
        arguments,
        "cherry-pick",
        "picked",
        lambda graph: partial(graph.cherry_pick, arguments.commit, arguments.branch),
    )


def run_blame(arguments: argparse.Namespace) -> int:
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
