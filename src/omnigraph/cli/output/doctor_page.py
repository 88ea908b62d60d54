"""The page of the doctor: plain text, aligned, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph.escaping import escape
from omnigraph.maintain.units import format_bytes, format_duration, format_time, plural

if TYPE_CHECKING:
    from omnigraph.maintain.doctor.report import DoctorReport, PendingWrite, TableHealth

WIDTH = 100
MAX_TABLES = 40
"""With more tables, those that need attention come first and the rest is summarized."""
_KEY = 30
_LABEL = 14
_COUNTS = ("versions", "fragments", "small_fragments", "rows", "deleted_rows")
_HEADS = ("versions", "fragments", "small", "rows", "deleted", "bytes", "indexed")


def render_doctor(report: DoctorReport) -> str:
    """The page, ending with the commands to run."""
    lines = [*_top(report), "", *_tables(report), "", *_graph(report), "", *_advice(report)]
    return "\n".join(escape(line).rstrip() for line in lines)


def _top(report: DoctorReport) -> Iterator[str]:
    state = "healthy" if report.is_healthy else "needs attention"
    yield _shorten(report.uri, WIDTH)
    yield f"branch {report.branch}, {format_time(report.at)}: {state}"


# -- tables ---------------------------------------------------------------------------------------


def _tables(report: DoctorReport) -> Iterator[str]:
    ordered = sorted(
        report.tables,
        key=lambda table: (not (table.error or table.head or table.reasons), table.table_key),
    )
    shown, rest = ordered[:MAX_TABLES], ordered[MAX_TABLES:]
    rows: list[tuple[str, ...]] = [("table", *_HEADS), *map(_row, shown)]
    if rest:
        rows.append(_sum(f"… {len(rest)} more", rest))
    rows.append(_sum("all", report.tables))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (name, *cells) in enumerate(rows):
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *numbers))
        if 0 < number <= len(shown):
            yield from _notes(shown[number - 1])


def _row(table: TableHealth) -> tuple[str, ...]:
    name = table.table_key if table.owned else f"{table.table_key} ({table.branch})"
    return (
        _shorten(name, _KEY),
        *(str(getattr(table, count)) for count in _COUNTS),
        format_bytes(table.size + table.index_size),
        "-" if not table.rows else f"{int(100 * table.covered)}%",
    )


def _sum(name: str, tables: Sequence[TableHealth]) -> tuple[str, ...]:
    counts = (str(sum(getattr(table, count) for table in tables)) for count in _COUNTS)
    size = sum(table.size + table.index_size for table in tables)
    return (name, *counts, format_bytes(size), "")


def _notes(table: TableHealth) -> Iterator[str]:
    if table.error:
        yield from _wrap("    ", f"cannot be read: {table.error}")
    if table.head is not None:
        yield f"    the graph shows version {table.version}, the table is at {table.head}"
    for reason in table.reasons:
        yield from _wrap("    ", reason)


# -- the graph ------------------------------------------------------------------------------------


def _graph(report: DoctorReport) -> Iterator[str]:
    versions = sum(manifest.versions for manifest in report.manifests)
    most = max((manifest.fragments for manifest in report.manifests), default=0)
    yield from _labelled("manifest", f"{versions} versions, at most {most} fragments on a branch")
    names = ", ".join(report.branches[:8])
    more = len(report.branches) - 8
    yield from _labelled("branches", f"{names}, and {more} more" if more > 0 else names)
    yield from _labelled("tags", str(report.tags))
    oldest = report.oldest
    if oldest is None:
        yield from _labelled("oldest pin", "all branches and tags use the newest versions")
    else:
        yield from _labelled(
            "oldest pin",
            f"{oldest.table_key} version {oldest.version}, {oldest.behind} behind the newest, "
            f"by {oldest.kind} {oldest.name}",
        )
    yield from _labelled("writes", *_writes(report.writes, "none interrupted"))
    yield from _labelled("staging", *_writes(report.staging, "none"))
    yield from _labelled("savings", *_savings(report))


def _writes(writes: Sequence[PendingWrite], none: str) -> Iterator[str]:
    if not writes:
        yield none
    for write in writes[:5]:
        if write.error:
            yield f"{write.operation}: {write.error}"
            continue
        branch = f" on {write.branch}" if write.branch else ""
        kind = f"{write.kind}{branch}, " if write.kind else ""
        tables = plural(len(write.tables), "table")
        yield f"{write.operation}: {kind}{format_duration(write.age)} old, {tables}"
    if len(writes) > 5:
        yield f"and {len(writes) - 5} more"


def _savings(report: DoctorReport) -> Iterator[str]:
    fewer = sum(table.small_fragments for table in report.tables if table.owned)
    saved = sum(table.saved for table in report.tables if table.owned)
    yield f"optimize: {fewer} small fragments, {format_bytes(saved)} of deleted rows"
    estimate = report.cleanup
    if estimate.why is not None:
        yield f"cleanup: unknown, because {estimate.why}"
    else:
        freed = f"{estimate.versions} versions, {format_bytes(estimate.size)}"
        yield f"cleanup that keeps {estimate.keep} versions: {freed}"


def _labelled(label: str, *texts: str) -> Iterator[str]:
    for number, text in enumerate(texts):
        head = (label if not number else "").ljust(_LABEL)
        first, *rest = textwrap.wrap(escape(text), WIDTH - _LABEL) or [""]
        yield head + first
        yield from (" " * _LABEL + line for line in rest)


# -- what to run ----------------------------------------------------------------------------------


def _advice(report: DoctorReport) -> Iterator[str]:
    if report.is_healthy:
        yield "Nothing to do."
        return
    yield "To do, most urgent first:"
    for number, advice in enumerate(report.advice, 1):
        # A command is never wrapped, so that it can be copied.
        yield f"  {number}. {advice.command}"
        yield from _wrap("     ", advice.why)


def _wrap(indent: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(escape(text), WIDTH, initial_indent=indent, subsequent_indent=indent)


def _shorten(text: str, most: int) -> str:
    """The end of a long text: paths and names differ there."""
    text = escape(text)
    return text if len(text) <= most else "…" + text[-most + 1 :]
