"""``omnigraph backup``, ``restore`` and ``clone``: copies of a graph with all of its history."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli import terminal
from omnigraph.cli.commands import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.durations import size
from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.progress import Bar, bar
from omnigraph.cli.targets import find_target, opened

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
    parser.add_argument("--to", required=True, metavar="PLACE", help="the backup")
    parser.add_argument("--list", action="store_true", help="only list the points that are there")
    add_json(parser)
    parser = command(
        commands, "restore", run_restore, Capability.DIRECT, "make a graph from a backup"
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("backup", metavar="BACKUP", help="the backup")
    parser.add_argument("new", metavar="URI", help="where the graph goes; none may be there")
    parser.add_argument("--point", metavar="ID", help="which point; the newest when not given")
    add_json(parser)
    parser = command(
        commands, "clone", run_clone, Capability.DIRECT, "make an independent copy of a graph"
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("original", metavar="URI", help="the graph")
    parser.add_argument("new", metavar="DEST", help="where the copy goes")
    add_json(parser)


def run_backup(arguments: argparse.Namespace) -> int:
    """Copy, or list."""
    if arguments.list:
        return _list(arguments)
    target = find_target(arguments)
    with opened(arguments, "rw", target) as (graph, _), bar("backup") as line:
        report = graph.maintenance.backup(arguments.to, progress=lambda told: _draw(line, told))
    told = report.to_json()
    _show(
        arguments,
        {"backup": arguments.to, **told, "uri": target.uri},
        f"backed up {target.uri} to {arguments.to}: point {report.point}, "
        f"{report.copied_files} of {report.files} files copied ({size(report.copied_bytes)})",
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
            f"{point.point} {point.taken_at.isoformat(timespec='seconds')} "
            f"{len(point.branches)} branches, {len(point.files)} files, {size(point.bytes)}"
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
    _show(
        arguments,
        {"backup": arguments.backup, **report.to_json(), "uri": arguments.new},
        f"restored {arguments.new} from {arguments.backup}: point {report.point}, "
        f"{len(report.branches)} branches, {report.files} files ({size(report.bytes)})",
    )
    return terminal.OK


def run_clone(arguments: argparse.Namespace) -> int:
    """Copy a graph."""
    load_operator()
    from omnigraph.copies import clone

    with bar("clone") as line:
        report = clone(arguments.original, arguments.new, progress=lambda told: _draw(line, told))
    _show(
        arguments,
        {"original": arguments.original, **report.to_json(), "uri": arguments.new},
        f"cloned {arguments.original} to {arguments.new}: "
        f"{len(report.branches)} branches, {report.files} files ({size(report.bytes)})",
    )
    return terminal.OK


def _draw(line: Bar, told: CopyProgress) -> None:
    line.show("copying", told.files, told.total_files, size(told.bytes))


def _show(arguments: argparse.Namespace, told: dict[str, Any], text: str) -> None:
    if arguments.json:
        terminal.show_json(told)
    else:
        terminal.show(text)
