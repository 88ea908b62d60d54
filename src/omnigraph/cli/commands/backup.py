"""``omnigraph backup``, ``backup prune``, ``restore`` and ``clone``: copies with all history."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from omnigraph.cli.durations import seconds
from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import Bar, bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command, subcommand
from omnigraph.cli.targets import Target, consent, find_target, opened
from omnigraph.errors import InputError
from omnigraph.maintain.units import format_bytes, format_time

if TYPE_CHECKING:
    from omnigraph.progress import Progress


def add(commands: Commands) -> None:
    """Declare the commands."""
    parser = command(
        commands,
        "backup",
        run_backup,
        Capability.DIRECT,
        "copy a graph to a backup, or list its points",
        description="Copies the graph as it is now, with history and branches, to a directory or "
        "an S3 prefix. A further backup to the same place adds a point and copies what is new. "
        "`omnigraph backup prune` removes points.",
    )
    add_uri(parser)
    parser.add_argument(
        "--to", required=True, metavar="PLACE", help="the backup: a directory or s3://bucket/prefix"
    )
    parser.add_argument("--list", action="store_true", help="only list the points that are there")
    add_json(parser)
    _add_prune(parser)
    parser = command(
        commands, "restore", run_restore, Capability.DIRECT, "make a graph from a backup"
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("backup", metavar="BACKUP", help="the backup")
    parser.add_argument("new", metavar="URI", help="where the graph goes; nothing may be there")
    parser.add_argument("--point", metavar="ID", help="which point; the newest when not given")
    add_json(parser)
    parser = command(
        commands, "clone", run_clone, Capability.DIRECT, "make an independent copy of a graph"
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("original", metavar="URI", help="the graph")
    parser.add_argument("new", metavar="DEST", help="where the copy goes; nothing may be there")
    add_json(parser)


def _add_prune(backup: argparse.ArgumentParser) -> None:
    parser = subcommand(
        backup,
        "prune",
        run_prune,
        "remove points of a backup, and the files that no other point needs",
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("place", metavar="BACKUP", help="the backup")
    parser.add_argument(
        "--point", action="append", default=[], metavar="ID", help="remove this point; repeatable"
    )
    parser.add_argument("--keep", type=int, metavar="N", help="keep the N newest points")
    parser.add_argument(
        "--older-than",
        metavar="DUR",
        help="remove only what is older: 30m, 12h, 7d, 4w; with --keep a point has to be behind "
        "both",
    )
    parser.add_argument("--confirm", action="store_true", help="do it; without this only a notice")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="remove nothing; say what would go and how many bytes",
    )
    parser.add_argument(
        "--allow-empty", action="store_true", help="the last point may be removed, too"
    )
    add_json(parser)


def run_prune(arguments: argparse.Namespace) -> int:
    """Remove points, or say what would happen."""
    operator = load_operator()
    older = None if arguments.older_than is None else seconds(arguments.older_than)
    if not arguments.point and arguments.keep is None and older is None:
        raise InputError(
            "backup prune needs a policy: pass --point, --keep, --older-than or both limits",
            hint="for example: omnigraph backup prune /backups/team --keep 7",
        )
    if not arguments.confirm and not arguments.dry_run:
        terminal.note(
            f"backup prune removes points of {arguments.place} for good: rerun with --confirm. "
            "--dry-run says what would go"
        )
        return terminal.OK
    if not arguments.dry_run:
        consent(arguments, Target(arguments.place, operator, None), "backup prune")
    from omnigraph.api.backup import prune_backup

    report = prune_backup(
        arguments.place,
        points=arguments.point,
        keep=arguments.keep,
        older_than=older,
        allow_empty=arguments.allow_empty,
        dry_run=arguments.dry_run,
    )
    verb = "would remove" if report.dry_run else "removed"
    lines = [f"{verb} point {point}" for point in report.removed]
    lines.append(
        f"{verb} {len(report.removed)} of {len(report.removed) + len(report.kept)} points of "
        f"{arguments.place} and {report.files} files ({format_bytes(report.bytes)})"
    )
    if arguments.json:
        terminal.show_json({"backup": arguments.place, **report.to_json(), "uri": arguments.place})
    else:
        terminal.show_lines(lines)
    return terminal.OK


def run_backup(arguments: argparse.Namespace) -> int:
    """Copy, or list."""
    if arguments.list:
        return _list(arguments)
    target = find_target(arguments)
    with opened(arguments, "rw", target) as (graph, _), bar("backup") as line:
        report = graph.maintenance.backup(arguments.to, on_progress=lambda told: _draw(line, told))
    told = report.to_json()
    terminal.show_either(
        arguments.json,
        {"backup": arguments.to, **told, "uri": target.uri},
        f"backed up {target.uri} to {arguments.to}: point {report.point}, "
        f"{report.copied_files} of {report.files} files copied "
        f"({format_bytes(report.copied_bytes)})",
    )
    return terminal.OK


def _list(arguments: argparse.Namespace) -> int:
    from omnigraph.api.backup import backup_points

    found = backup_points(arguments.to)
    if arguments.json:
        points = [
            {
                "point": point.point,
                "taken_at": point.taken_at.isoformat(),
                "graph": point.graph,
                "branches": dict(point.branches),
                "files": len(point.files),
                "bytes": point.bytes,
            }
            for point in found
        ]
        terminal.show_json({"backup": arguments.to, "points": points})
        return terminal.OK
    for point in found:
        terminal.show(
            f"{point.point} {format_time(point.taken_at)} "
            f"{len(point.branches)} branches, {len(point.files)} files, {format_bytes(point.bytes)}"
        )
    return terminal.OK


def run_restore(arguments: argparse.Namespace) -> int:
    """Make a graph of a point."""
    load_operator()
    from omnigraph.api.backup import restore

    with bar("restore") as line:
        report = restore(
            arguments.backup,
            arguments.new,
            point=arguments.point,
            on_progress=lambda told: _draw(line, told),
        )
    terminal.show_either(
        arguments.json,
        {"backup": arguments.backup, **report.to_json(), "uri": arguments.new},
        f"restored {arguments.new} from {arguments.backup}: point {report.point}, "
        f"{len(report.branches)} branches, {report.files} files ({format_bytes(report.bytes)})",
    )
    return terminal.OK


def run_clone(arguments: argparse.Namespace) -> int:
    """Copy a graph."""
    load_operator()
    from omnigraph.api.backup import clone

    with bar("clone") as line:
        report = clone(
            arguments.original, arguments.new, on_progress=lambda told: _draw(line, told)
        )
    terminal.show_either(
        arguments.json,
        {"original": arguments.original, **report.to_json(), "uri": arguments.new},
        f"cloned {arguments.original} to {arguments.new}: "
        f"{len(report.branches)} branches, {report.files} files ({format_bytes(report.bytes)})",
    )
    return terminal.OK


def _draw(line: Bar, progress: Progress) -> None:
    copied = format_bytes(progress.detail["bytes"])
    line.show(progress.phase, progress.done, progress.total, copied)
