"""``omnigraph backup``, ``backup prune``, ``restore`` and ``clone``: copies with all history."""

from __future__ import annotations

import argparse

from omnigraph.cli.flags import UsageError
from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.options import add_repeatable, add_retention, add_switch, parse_duration
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.targets import GraphTarget, open_graph, require_consent, resolve_target
from omnigraph.errors import InputError
from omnigraph.maintain.units import format_bytes, format_time


def add_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", required=True, metavar="DEST", help="backup: a directory or s3://bucket/prefix"
    )
    add_switch(parser, "--list", "only list the existing points")


def add_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="backup to restore")
    parser.add_argument("new", metavar="URI", help="location of the new graph; must be empty")
    parser.add_argument("--point", metavar="ID", help="point to restore; default: the newest")


def add_clone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", metavar="URI", help="graph to copy")
    parser.add_argument("new", metavar="DEST", help="location of the copy; must be empty")


def add_backup_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="backup to prune")
    add_repeatable(parser, "--point", "ID", "delete this point; repeatable")
    add_retention(parser, "points")
    add_switch(parser, "--allow-empty", "allow the last point to be deleted")


def run_backup_prune(arguments: argparse.Namespace) -> int:
    operator = load_operator_config()
    backup = arguments.backup
    older_than = parse_duration(arguments.older_than)
    if not arguments.point and arguments.keep is None and older_than is None:
        raise InputError(
            "backup prune needs a policy: pass --point, or one or both of --keep and --older-than",
            hint="for example: omnigraph backup prune /backups/team --keep 7",
        )
    if arguments.point and (arguments.keep is not None or older_than is not None):
        raise UsageError("--point cannot be combined with --keep or --older-than")
    if not arguments.confirm and not arguments.dry_run:
        terminal.note(
            f"backup prune deletes points of {backup} permanently: rerun with --confirm. "
            "--dry-run reports what would be deleted"
        )
        return terminal.OK
    if not arguments.dry_run:
        require_consent(arguments, GraphTarget(backup, operator, None), "backup prune")
    from omnigraph.api.backup import prune_backup

    report = prune_backup(
        backup,
        points=arguments.point,
        keep=arguments.keep,
        older_than=older_than,
        allow_empty=arguments.allow_empty,
        dry_run=arguments.dry_run,
    )
    verb = "would remove" if report.dry_run else "removed"
    summary = (
        f"{verb} {len(report.removed)} of {len(report.removed) + len(report.kept)} points of "
        f"{backup} and {report.files} files ({format_bytes(report.bytes)})"
    )
    return show_report(
        arguments,
        {"backup": backup, **report.to_json(), "uri": backup},
        [*(f"{verb} point {point}" for point in report.removed), summary],
    )


def run_backup(arguments: argparse.Namespace) -> int:
    """Copies the current graph, with its history and branches, to a directory or an S3 prefix.
    Another backup to the same location adds a point and copies only new files. `omnigraph backup
    prune` deletes points.
    """
    if arguments.list:
        return _list_points(arguments)
    target = resolve_target(arguments)
    with open_graph(arguments, "rw", target) as (graph, _), progress_bar("backup") as line:
        report = graph.maintenance.backup(arguments.to, on_progress=line.update)
    return show_report(
        arguments,
        {"backup": arguments.to, **report.to_json(), "uri": target.uri},
        f"backed up {target.uri} to {arguments.to}: point {report.point}, "
        f"{report.copied_files} of {report.files} files copied "
        f"({format_bytes(report.copied_bytes)})",
    )


def _list_points(arguments: argparse.Namespace) -> int:
    from omnigraph.api.backup import backup_points

    points = backup_points(arguments.to)
    document = [
        {
            "point": point.point,
            "taken_at": point.taken_at.isoformat(),
            "graph": point.graph,
            "branches": dict(point.branches),
            "files": len(point.files),
            "bytes": point.bytes,
        }
        for point in points
    ]
    lines = (
        f"{point.point} {format_time(point.taken_at)} "
        f"{len(point.branches)} branches, {len(point.files)} files, {format_bytes(point.bytes)}"
        for point in points
    )
    return show_report(arguments, {"backup": arguments.to, "points": document}, lines)


def run_restore(arguments: argparse.Namespace) -> int:
    load_operator_config()
    from omnigraph.api.backup import restore

    with progress_bar("restore") as line:
        report = restore(
            arguments.backup, arguments.new, point=arguments.point, on_progress=line.update
        )
    return show_report(
        arguments,
        {"backup": arguments.backup, **report.to_json(), "uri": arguments.new},
        f"restored {arguments.new} from {arguments.backup}: point {report.point}, "
        f"{len(report.branches)} branches, {report.files} files ({format_bytes(report.bytes)})",
    )


def run_clone(arguments: argparse.Namespace) -> int:
    load_operator_config()
    from omnigraph.api.backup import clone

    with progress_bar("clone") as line:
        report = clone(arguments.original, arguments.new, on_progress=line.update)
    return show_report(
        arguments,
        {"original": arguments.original, **report.to_json(), "uri": arguments.new},
        f"cloned {arguments.original} to {arguments.new}: "
        f"{len(report.branches)} branches, {report.files} files ({format_bytes(report.bytes)})",
    )
