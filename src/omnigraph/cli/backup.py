"""``omnigraph backup``, ``restore`` and ``clone``: copies of a graph with all of its history."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from omnigraph.cli import terminal
from omnigraph.cli.commands import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.progress import Bar, bar
from omnigraph.cli.targets import find_target, opened
from omnigraph.maintain.wording import moment_text, size_text

if TYPE_CHECKING:
    from omnigraph.maintain.backup import CopyProgress


def add(commands: Commands) -> None:
    """Declare the three commands."""
    parser = command(
        commands,
        "backup",
        run_backup,
        Capability.DIRECT,
        "copy a graph to a backup, or list its points",
        description="Copies the graph as it is now, with history and branches, to a directory or "
        "an S3 prefix. A further backup to the same place adds a point and copies what is new.",
    )
    add_uri(parser)
    parser.add_argument(
        "--to", required=True, metavar="PLACE", help="the backup: a directory or s3://bucket/prefix"
    )
    parser.add_argument("--list", action="store_true", help="only list the points that are there")
    add_json(parser)
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


def run_backup(arguments: argparse.Namespace) -> int:
    """Copy, or list."""
    if arguments.list:
        return _list(arguments)
    target = find_target(arguments)
    with opened(arguments, "rw", target) as (graph, _), bar("backup") as line:
        report = graph.maintenance.backup(arguments.to, progress=lambda told: _draw(line, told))
    told = report.to_json()
    terminal.show_either(
        arguments.json,
        {"backup": arguments.to, **told, "uri": target.uri},
        f"backed up {target.uri} to {arguments.to}: point {report.point}, "
        f"{report.copied_files} of {report.files} files copied ({size_text(report.copied_bytes)})",
    )
    return terminal.OK


def _list(arguments: argparse.Namespace) -> int:
    from omnigraph.copies import backup_points

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
            f"{point.point} {moment_text(point.taken_at)} "
            f"{len(point.branches)} branches, {len(point.files)} files, {size_text(point.bytes)}"
        )
    return terminal.OK


def run_restore(arguments: argparse.Namespace) -> int:
    """Make a graph of a point."""
    load_operator()
    from omnigraph.copies import restore

    with bar("restore") as line:
        report = restore(
            arguments.backup,
            arguments.new,
            point=arguments.point,
            progress=lambda told: _draw(line, told),
        )
    terminal.show_either(
        arguments.json,
        {"backup": arguments.backup, **report.to_json(), "uri": arguments.new},
        f"restored {arguments.new} from {arguments.backup}: point {report.point}, "
        f"{len(report.branches)} branches, {report.files} files ({size_text(report.bytes)})",
    )
    return terminal.OK


def run_clone(arguments: argparse.Namespace) -> int:
    """Copy a graph."""
    load_operator()
    from omnigraph.copies import clone

    with bar("clone") as line:
        report = clone(arguments.original, arguments.new, progress=lambda told: _draw(line, told))
    terminal.show_either(
        arguments.json,
        {"original": arguments.original, **report.to_json(), "uri": arguments.new},
        f"cloned {arguments.original} to {arguments.new}: "
        f"{len(report.branches)} branches, {report.files} files ({size_text(report.bytes)})",
    )
    return terminal.OK


def _draw(line: Bar, told: CopyProgress) -> None:
    line.show("copying", told.files, told.total_files, size_text(told.bytes))
