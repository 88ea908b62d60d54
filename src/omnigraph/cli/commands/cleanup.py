"""``omnigraph cleanup``: removing old versions and what dead writers left."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from omnigraph.cli.durations import seconds
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import consent, echo, find_target, opened
from omnigraph.errors import InputError
from omnigraph.maintain.units import format_bytes

if TYPE_CHECKING:
    from omnigraph.maintain.cleanup.report import CleanupReport


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "cleanup",
        run,
        Capability.DIRECT,
        "remove old versions",
        description="Removes versions of tables that are behind the given limits and that nobody "
        "needs, and what dead writers left. With both limits, a version has to be behind both.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument(
        "--keep", type=int, metavar="N", help="keep the N newest versions of each table"
    )
    parser.add_argument(
        "--older-than", metavar="DUR", help="remove only what is older: 30m, 12h, 7d, 4w"
    )
    parser.add_argument("--confirm", action="store_true", help="do it; without this only a notice")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="remove nothing; say what would go and how many bytes",
    )
    parser.add_argument(
        "--min-age",
        metavar="DUR",
        help="keep what is younger; an hour if not given, a day for files that no version names",
    )
    parser.add_argument(
        "--feed-retention", metavar="DUR", help="keep every commit of this time for change feeds"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Clean up, or say what would happen."""
    if arguments.keep is None and arguments.older_than is None:
        raise InputError(
            "cleanup needs a policy: pass --keep, --older-than or both",
            hint="for example: omnigraph cleanup --keep 10 --older-than 7d",
        )
    if arguments.keep is not None and arguments.keep < 0:
        raise InputError("--keep cannot be negative", hint="the newest version always stays")
    older = _seconds(arguments.older_than)
    min_age, feed = _seconds(arguments.min_age), _seconds(arguments.feed_retention)
    target = find_target(arguments)
    policy = _policy(arguments)
    if not arguments.confirm and not arguments.dry_run:
        terminal.note(
            "cleanup is destructive — rerun with --confirm. "
            f"Policy for {target.uri}: {policy}. --dry-run says what would go"
        )
        return terminal.OK
    if not arguments.dry_run:
        consent(arguments, target, "cleanup")
        echo(arguments, target)
    with opened(arguments, "rw", target) as (graph, _), bar("cleanup") as line:
        report = graph.maintenance.cleanup(
            arguments.keep,
            older,
            dry_run=arguments.dry_run,
            min_age=min_age,
            feed_retention=feed,
            on_progress=lambda told: line.show(told.phase, told.done, told.total),
        )
    if arguments.json:
        told = report.to_json()
        first = {"uri": target.uri, "keep_versions": arguments.keep, "older_than_secs": older}
        terminal.show_json({**first, **told})
    else:
        _show(report, target.uri, policy)
    return terminal.OK


def _seconds(text: str | None) -> int | None:
    return None if text is None else seconds(text)


def _policy(arguments: argparse.Namespace) -> str:
    parts = []
    if arguments.keep is not None:
        parts.append(f"keep {arguments.keep}")
    if arguments.older_than is not None:
        parts.append(f"older than {arguments.older_than}")
    return ", ".join(parts)


def _show(report: CleanupReport, uri: str, policy: str) -> None:
    versions = sum(table.old_versions_removed for table in report.tables)
    removed = sum(table.bytes_removed for table in report.tables)
    verb = "would remove" if report.dry_run else "removed"
    terminal.show(
        f"cleanup {uri} ({policy}) — {verb} {versions} versions ({removed} bytes) "
        f"across {len(report.tables)} tables"
    )
    failed = [table for table in report.tables if table.error is not None]
    if failed:
        texts = "; ".join(f"{table.table_key}: {table.error}" for table in failed)
        terminal.show(f"failed: {texts}")
    manifest = report.manifest
    terminal.show(
        f"history: {manifest.old_versions_removed} versions of the manifest "
        f"({format_bytes(manifest.bytes_removed)}); "
        f"main is complete from version {manifest.floor} on"
    )
    for name, found in (
        ("orphan forks", report.forks),
        ("files that no version names", report.files),
        ("dropped tables", report.dropped),
        ("topologies", report.topologies),
        ("markers", report.markers),
    ):
        if found.count:
            terminal.show(f"{name}: {found.count} ({format_bytes(found.bytes)})")
    for skipped in report.skipped:
        terminal.show(f"left alone: {skipped.what}: {skipped.reason}")
    terminal.show(f"in all {format_bytes(report.bytes_removed)}")
