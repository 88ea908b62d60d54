"""``omnigraph branch``: create, list, delete and merge branches."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import counts_json, counts_text
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Commands, family
from omnigraph.cli.targets import echo, open_graph, require_consent, resolve_target
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.merge.run import MergeReport


def add(commands: Commands) -> None:
    branch = family(commands, "branch", "create, list, delete and merge branches")
    parser = branch.add("create", run_create, "create a branch without copying data", writes=True)
    parser.add_argument("name", metavar="NAME", help="name of the new branch")
    parser.add_argument("--from", dest="base", default="main", metavar="B", help="its base")
    branch.add("list", run_list, "list branches")
    parser = branch.add("delete", run_delete, "delete a branch", writes=True)
    parser.add_argument("name", metavar="NAME", help="branch to delete")
    parser = branch.add("merge", run_merge, "merge a branch into another", writes=True)
    parser.add_argument("source", metavar="SOURCE", help="branch to merge")
    parser.add_argument("--into", default="main", metavar="B", help="branch to merge into")
    parser.add_argument(
        "--delete-branch", action="store_true", help="delete the source after the merge"
    )
    add_resolve(parser)


def add_resolve(parser: argparse.ArgumentParser) -> None:
    """The options of every command that merges."""
    parser.add_argument(
        "--resolve",
        metavar="HOW",
        help="resolve conflicts: ours (the target), theirs, or a file of choices",
    )
    parser.add_argument(
        "--conflicts",
        metavar="FILE",
        help="write the conflicts to this file; fill in the choices and pass it to --resolve",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the result")


def run_create(arguments: argparse.Namespace) -> int:
    name, base = arguments.name, arguments.base
    with open_graph(arguments, "rw") as (graph, target):
        echo(arguments, target, "branch create")
        graph.branches.create(name, base)
    document = {"uri": target.uri, "from": base, "name": name, "actor_id": target.actor}
    return show_report(arguments, document, f"created branch {name} from {base}")


def run_list(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        names = sorted(graph.branches.list())
    return show_report(arguments, {"branches": names}, names)


def run_delete(arguments: argparse.Namespace) -> int:
    target = resolve_target(arguments)
    target.storage("branch delete")
    require_consent(arguments, target, "branch delete")
    echo(arguments, target, "branch delete")
    with open_graph(arguments, "rw", target) as (graph, _):
        graph.branches.delete(arguments.name)
    document = {"uri": target.uri, "name": arguments.name, "actor_id": target.actor}
    return show_report(arguments, document, f"deleted branch {arguments.name}")


def run_merge(arguments: argparse.Namespace) -> int:
    options = {"delete_branch": arguments.delete_branch}
    return merge_by(
        arguments,
        "branch merge",
        "merged",
        lambda graph: partial(graph.merge, arguments.source, arguments.into),
        options,
    )


def merge_by(
    arguments: argparse.Namespace,
    name: str,
    verb: str,
    operation: Callable[[Graph], Callable[..., MergeReport]],
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run or preview an operation that merges, and show its report.

    With ``--conflicts``, a preview writes the conflicts to the file before they fail the commit.
    """
    with open_graph(arguments, "r" if arguments.dry_run else "rw") as (graph, target):
        if not arguments.dry_run:
            echo(arguments, target, name)
        merge = partial(operation(graph), resolve=resolution(arguments))
        with progress_bar(name.removeprefix("branch ")) as line:
            line.show("comparing")
            if arguments.dry_run or arguments.conflicts is not None:
                report = merge(dry_run=True)
                if arguments.conflicts is not None:
                    report.conflicts.write(arguments.conflicts)
            if not arguments.dry_run:
                report = merge(**(options or {}))
    return show_merge(arguments, report, target.actor, verb)


def resolution(arguments: argparse.Namespace) -> Any:
    """How to resolve conflicts: a side, or the path of a file of choices."""
    from pathlib import Path

    if arguments.resolve in (None, "ours", "theirs"):
        return arguments.resolve
    path = Path(arguments.resolve)
    if not path.is_file():
        raise InputError(
            f"invalid resolution '{arguments.resolve}'; expected ours, theirs or an existing file",
            hint="--conflicts FILE writes a file to start from",
        )
    return path


def show_merge(
    arguments: argparse.Namespace, report: MergeReport, actor: str | None, verb: str = "merged"
) -> int:
    """Show a merge; a preview with conflicts returns the exit code for conflicts."""
    document: dict[str, Any] = {
        "source": report.source,
        "target": report.target,
        "outcome": report.outcome.value,
        "actor_id": actor,
        "commit_id": report.commit_id,
        "dry_run": arguments.dry_run,
        "tables": {key: counts_json(counts) for key, counts in sorted(report.tables.items())},
        "conflicts": [conflict.to_json() for conflict in report.conflicts],
        "resolved": len(report.resolved),
    }
    if report.branch_deleted is not None:
        document["branch_deleted"] = report.branch_deleted
    verb = f"would have {verb}" if arguments.dry_run else verb
    show_report(arguments, document, _merge_lines(report, verb))
    return terminal.OK if report.is_clean else terminal.CONFLICT


def _merge_lines(report: MergeReport, verb: str) -> Iterator[str]:
    yield f"{verb} {report.source} into {report.target}: {report.outcome.value}"
    for key, counts in sorted(report.tables.items()):
        yield f"  {counts_text(key, counts)}"
    for conflict in report.conflicts:
        yield f"  conflict {conflict.conflict_id} {conflict.location}"
        yield f"    {conflict.message}"
    if report.resolved:
        count = len(report.resolved)
        yield f"  {count} conflict{'s' if count > 1 else ''} resolved"
    if report.commit_id is not None:
        yield f"commit_id: {report.commit_id}"
