"""``omnigraph branch``, ``tag``, ``revert`` and ``cherry-pick``: names of states, and merges."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.cli.options import add_branch, add_idempotency_key, add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import counts_json, counts_text
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.targets import (
    actor_of,
    open_for_write,
    open_graph,
    require_consent,
    resolve_target,
)
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.commits import Tag
    from omnigraph.merge.run import MergeReport


def add_branch_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the new branch")
    parser.add_argument("--from", dest="base", default="main", metavar="B", help="its base")


def add_branch_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="branch to delete")


def add_branch_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="branch to merge")
    parser.add_argument("--into", default="main", metavar="B", help="branch to merge into")
    add_switch(parser, "--delete-branch", "delete the source after the merge")
    _add_resolve(parser)


def _add_resolve(parser: argparse.ArgumentParser) -> None:
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
    add_switch(parser, "--dry-run", "only show the result")
    add_idempotency_key(parser)


def run_branch_create(arguments: argparse.Namespace) -> int:
    name, base = arguments.name, arguments.base
    with open_for_write(arguments) as (graph, target):
        graph.branches.create(name, base)
        actor = actor_of(graph, target)
    document = {"uri": target.uri, "from": base, "name": name, "actor_id": actor}
    return show_report(arguments, document, f"created branch {name} from {base}")


def run_branch_list(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        names = sorted(graph.branches.list())
    return show_report(arguments, {"branches": names}, names)


def run_branch_delete(arguments: argparse.Namespace) -> int:
    target = resolve_target(arguments)
    require_consent(arguments, target, "branch delete")
    with open_for_write(arguments, target) as (graph, _):
        graph.branches.delete(arguments.name)
        actor = actor_of(graph, target)
    document = {"uri": target.uri, "name": arguments.name, "actor_id": actor}
    return show_report(arguments, document, f"deleted branch {arguments.name}")


def run_branch_merge(arguments: argparse.Namespace) -> int:
    return _merge(
        arguments,
        "merged",
        lambda graph: partial(graph.merge, arguments.source, arguments.into),
        delete_branch=arguments.delete_branch,
    )


def _merge(
    arguments: argparse.Namespace,
    verb: str,
    operation: Callable[[Graph], Callable[..., MergeReport]],
    **options: Any,
) -> int:
    """Run or preview an operation that merges, and show its report.

    With ``--conflicts``, a preview writes the conflicts to the file before they fail the commit.
    """
    opened = open_graph(arguments, "r") if arguments.dry_run else open_for_write(arguments)
    with opened as (graph, target):
        key = arguments.idempotency_key
        merge = partial(operation(graph), resolve=_resolution(arguments), idempotency_key=key)
        with progress_bar(arguments.command.removeprefix("branch ")) as line:
            line.show("comparing")
            if arguments.dry_run or arguments.conflicts is not None:
                report = merge(dry_run=True)
                if arguments.conflicts is not None:
                    report.conflicts.write(arguments.conflicts)
            if not arguments.dry_run:
                report = merge(**options)
        actor = actor_of(graph, target)
    return show_merge(arguments, report, actor, verb)


def _resolution(arguments: argparse.Namespace) -> Any:
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
        "tables": counts_json(report.tables),
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


def add_tag_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the tag")
    commit = parser.add_mutually_exclusive_group()
    commit.add_argument("--commit", metavar="ID", help="commit to tag")
    commit.add_argument("--branch", metavar="B", help="tag the head of B; default: main")
    add_switch(parser, "--move", "move an existing tag")
    add_idempotency_key(parser)


def add_tag_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="tag to delete")


def run_tag_create(arguments: argparse.Namespace) -> int:
    from omnigraph.errors import AlreadyExists

    with open_for_write(arguments) as (graph, target):
        try:
            tag = graph.tags.create(
                arguments.name,
                arguments.commit,
                branch="main" if arguments.branch is None else arguments.branch,
                move=arguments.move,
                idempotency_key=arguments.idempotency_key,
            )
        except AlreadyExists as error:
            raise AlreadyExists(
                error.message, hint="pass --move to move it", details=error.details
            ) from error
    document = {"uri": target.uri, **_tag_json(tag)}
    shows = "" if tag.shows is None else f"; it shows the state after {tag.shows}, of its group"
    return show_report(arguments, document, f"tagged {tag.commit_id} as {tag.name}{shows}")


def run_tag_list(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        tags = graph.tags.list()
    lines = (
        f"{tag.name} {tag.commit_id}{f' actor={tag.actor}' if tag.actor else ''}" for tag in tags
    )
    return show_report(arguments, {"tags": [_tag_json(tag) for tag in tags]}, lines)


def run_tag_delete(arguments: argparse.Namespace) -> int:
    with open_for_write(arguments) as (graph, target):
        graph.tags.delete(arguments.name)
        actor = actor_of(graph, target)
    document = {"uri": target.uri, "name": arguments.name, "actor_id": actor}
    return show_report(arguments, document, f"deleted tag {arguments.name}")


def _tag_json(tag: Tag) -> dict[str, Any]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "created_at": tag.created_at,
        "actor_id": tag.actor,
        **({} if tag.shows is None else {"shows": tag.shows}),
    }


def add_revert(parser: argparse.ArgumentParser) -> None:
    _add_commit(parser, "commit to undo")


def add_cherry_pick(parser: argparse.ArgumentParser) -> None:
    _add_commit(parser, "commit to apply")


def _add_commit(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("commit", metavar="COMMIT", help=text)
    add_branch(parser, "branch to change")
    _add_resolve(parser)


def run_revert(arguments: argparse.Namespace) -> int:
    """Undoes the changes of a commit with a new commit; later changes stay. A row that was changed
    again since is a conflict.
    """
    return _merge(
        arguments,
        "reverted",
        lambda graph: partial(graph.revert, arguments.commit, arguments.branch),
    )


def run_cherry_pick(arguments: argparse.Namespace) -> int:
    """Applies the changes of a commit of any branch to a branch, in a new commit."""
    return _merge(
        arguments,
        "picked",
        lambda graph: partial(graph.cherry_pick, arguments.commit, arguments.branch),
    )
