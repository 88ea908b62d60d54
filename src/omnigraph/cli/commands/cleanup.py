"""``omnigraph cleanup``: delete old versions and leftovers of interrupted writers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.cli.durations import parse_duration
from omnigraph.cli.options import add_json, add_retention, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import echo, open_graph, require_consent, resolve_target
from omnigraph.errors import InputError
from omnigraph.maintain.units import format_bytes

if TYPE_CHECKING:
    from omnigraph.maintain.cleanup.report import CleanupReport


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "cleanup",
        run,
        Capability.DIRECT,
        "delete old versions",
        description="Deletes table versions that exceed the limits and are not referenced, and "
        "the leftovers of interrupted writers. With both limits, a version must exceed both.",
        in_cluster=True,
    )
    add_uri(parser)
    add_retention(parser, "versions of each table")
    parser.add_argument(
        "--min-age",
        metavar="DUR",
        help="keep anything younger; default: one hour, one day for orphaned files",
    )
    parser.add_argument(
        "--feed-retention", metavar="DUR", help="keep commits of this period for change feeds"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    keep = arguments.keep
    if keep is None and arguments.older_than is None:
        raise InputError(
            "cleanup needs a policy: pass --keep, --older-than or both",
            hint="for example: omnigraph cleanup --keep 10 --older-than 7d",
        )
    if keep is not None and keep < 0:
        raise InputError("--keep cannot be negative", hint="the newest version is never deleted")
    older_than = parse_duration(arguments.older_than)
    min_age = parse_duration(arguments.min_age)
    feed_retention = parse_duration(arguments.feed_retention)
    target = resolve_target(arguments)
    limits = {"keep": keep, "older than": arguments.older_than}
    policy = ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
    if not arguments.confirm and not arguments.dry_run:
        terminal.note(
            "cleanup is destructive — rerun with --confirm. "
            f"Policy for {target.uri}: {policy}. --dry-run reports what would be deleted"
        )
        return terminal.OK
    if not arguments.dry_run:
        require_consent(arguments, target, "cleanup")
        echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _), progress_bar("cleanup") as line:
        report = graph.maintenance.cleanup(
            keep,
            older_than,
            dry_run=arguments.dry_run,
            min_age=min_age,
            feed_retention=feed_retention,
            on_progress=line.update,
        )
    document = {"uri": target.uri, "keep_versions": keep, "older_than_secs": older_than}
    return show_report(
        arguments, {**document, **report.to_json()}, _lines(report, target.uri, policy)
    )


def _lines(report: CleanupReport, uri: str, policy: str) -> Iterator[str]:
    versions = sum(table.old_versions_removed for table in report.tables)
    removed = sum(table.bytes_removed for table in report.tables)
    verb = "would remove" if report.dry_run else "removed"
    yield (
        f"cleanup {uri} ({policy}) — {verb} {versions} versions ({removed} bytes) "
        f"across {len(report.tables)} tables"
    )
    failures = [f"{table.table_key}: {table.error}" for table in report.tables if table.error]
    if failures:
        yield f"failed: {'; '.join(failures)}"
    manifest = report.manifest
    yield (
        f"history: {manifest.old_versions_removed} manifest versions "
        f"({format_bytes(manifest.bytes_removed)}); "
        f"main is complete from version {manifest.floor} on"
    )
    for name, removal in (
        ("orphaned forks", report.forks),
        ("orphaned files", report.files),
        ("dropped tables", report.dropped),
        ("topologies", report.topologies),
        ("markers", report.markers),
    ):
        if removal.count:
            yield f"{name}: {removal.count} ({format_bytes(removal.bytes)})"
    for skipped in report.skipped:
        yield f"skipped: {skipped.what}: {skipped.reason}"
    yield f"total: {format_bytes(report.bytes_removed)}"
