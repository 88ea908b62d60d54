"""``omnigraph branch``: making, listing, deleting and merging branches."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Commands, family, form
from omnigraph.cli.targets import consent, echo, find_target, opened
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.merge.run import MergeReport


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "branch", "work with branches")
    parser = form(
        forms, "branch", "create", run_create, "make a branch; nothing is copied", writes=True
    )
    parser.add_argument("name", metavar="NAME", help="the new branch")
    parser.add_argument("--from", dest="base", default="main", metavar="B", help="where it starts")
    form(forms, "branch", "list", run_list, "list the branches")
    parser = form(forms, "branch", "delete", run_delete, "delete a branch", writes=True)
    parser.add_argument("name", metavar="NAME", help="the branch")
    parser = form(forms, "branch", "merge", run_merge, "bring a branch into another", writes=True)
    parser.add_argument("source", metavar="SOURCE", help="what is brought")
    parser.add_argument("--into", default="main", metavar="B", help="where it is brought")
    parser.add_argument(
        "--delete-branch", action="store_true", help="delete the source when it is merged"
    )
    add_resolve(parser)


def add_resolve(parser: argparse.ArgumentParser) -> None:
    """The options of everything that merges."""
    parser.add_argument(
        "--resolve",
        metavar="HOW",
        help="decide conflicts: ours (the target), theirs, or a file of choices",
    )
    parser.add_argument(
        "--conflicts",
        metavar="FILE",
        help="write the conflicts there, to fill in each choice and pass the file to --resolve",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would happen")


def run_create(arguments: argparse.Namespace) -> int:
    """Make a branch."""
    with opened(arguments, "rw") as (graph, target):
        echo(arguments, target, "branch create")
        graph.branches.create(arguments.name, arguments.base)
    told = {
        "uri": target.uri,
        "from": arguments.base,
        "name": arguments.name,
        "actor_id": target.actor,
    }
    terminal.show_either(
        arguments.json, told, f"created branch {arguments.name} from {arguments.base}"
    )
    return terminal.OK


def run_list(arguments: argparse.Namespace) -> int:
    """List the branches."""
    with opened(arguments, "r") as (graph, _):
        names = sorted(graph.branches.list())
    if arguments.json:
        terminal.show_json({"branches": names})
    else:
        terminal.show_lines(names)
    return terminal.OK


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete a branch."""
    target = find_target(arguments)
    target.storage("branch delete")
    consent(arguments, target, "branch delete")
    echo(arguments, target, "branch delete")
    with opened(arguments, "rw", target) as (graph, _):
        graph.branches.delete(arguments.name)
    told = {"uri": target.uri, "name": arguments.name, "actor_id": target.actor}
    terminal.show_either(arguments.json, told, f"deleted branch {arguments.name}")
    return terminal.OK


def run_merge(arguments: argparse.Namespace) -> int:
    """Merge, or show what a merge would do."""
    with opened(arguments, "r" if arguments.dry_run else "rw") as (graph, target):
        if not arguments.dry_run:
            echo(arguments, target, "branch merge")
        preview = None
        if arguments.conflicts is not None:
            preview = graph.merge(
                arguments.source, arguments.into, resolve=resolution(arguments), dry_run=True
            )
            preview.conflicts.write(arguments.conflicts)
        with bar("merge") as line:
            line.show("comparing")
            report = preview if preview is not None and arguments.dry_run else None
            report = report or graph.merge(
                arguments.source,
                arguments.into,
                resolve=resolution(arguments),
                dry_run=arguments.dry_run,
                delete_branch=arguments.delete_branch,
            )
    return show_merge(arguments, report, target.actor)


def resolution(arguments: argparse.Namespace) -> Any:
    """How conflicts are decided."""
    from pathlib import Path

    if arguments.resolve in (None, "ours", "theirs"):
        return arguments.resolve
    path = Path(arguments.resolve)
    if not path.is_file():
        raise InputError(
            f"'{arguments.resolve}' is neither ours, theirs nor a file",
            hint="--conflicts FILE writes a file to start from",
        )
    return path


def show_merge(
    arguments: argparse.Namespace, report: MergeReport, actor: str | None, verb: str = "merged"
) -> int:
    """What a merge did; a preview with conflicts has the exit code of conflicts."""
    told: dict[str, Any] = {
        "source": report.source,
        "target": report.target,
        "outcome": report.outcome.value,
        "actor_id": actor,
        "commit_id": report.commit_id,
        "dry_run": arguments.dry_run,
        "tables": {
            key: {"inserted": c.inserted, "updated": c.updated, "deleted": c.deleted}
            for key, c in sorted(report.tables.items())
        },
        "conflicts": [conflict.to_json() for conflict in report.conflicts],
        "resolved": len(report.resolved),
    }
    if report.branch_deleted is not None:
        told["branch_deleted"] = report.branch_deleted
    if arguments.json:
        terminal.show_json(told)
    else:
        verb = f"would have {verb}" if arguments.dry_run else verb
        terminal.show(f"{verb} {report.source} into {report.target}: {report.outcome.value}")
        for key, counts in sorted(report.tables.items()):
            terminal.show(f"  {key} +{counts.inserted} ~{counts.updated} -{counts.deleted}")
        for conflict in report.conflicts:
            terminal.show(f"  conflict {conflict.conflict_id} {conflict.location}")
            terminal.show(f"    {conflict.message}")
        if report.resolved:
            many = len(report.resolved)
            terminal.show(f"  {many} conflict{'s' if many > 1 else ''} resolved")
        if report.commit_id is not None:
            terminal.show(f"commit_id: {report.commit_id}")
    return terminal.OK if report.is_clean else terminal.CONFLICT
