"""The page of the doctor, drawn: plain text, aligned, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from omnigraph.escaping import escape
from omnigraph.maintain.doctor.report import Busy, DoctorReport, TableHealth
from omnigraph.maintain.wording import age_text, counted, moment_text, size_text

WIDTH = 100
MOST_TABLES = 40
"""Of more tables, those that need something come first and the rest is counted."""
_KEY = 30
_LABEL = 14
_HEADS = ("versions", "parts", "small", "rows", "deleted", "bytes", "indexed")


def drawn(report: DoctorReport) -> str:
    """All of it, ending with what to run."""
    lines = [*_top(report), "", *_tables(report), "", *_graph(report), "", *_advice(report)]
    return "\n".join(escape(line).rstrip() for line in lines)


def _top(report: DoctorReport) -> Iterator[str]:
    moment = moment_text(report.at)
    state = "healthy" if report.is_healthy else "needs attention"
    yield _short(f"{report.uri}", WIDTH)
    yield f"branch {report.branch}, {moment}: {state}"


# -- tables ---------------------------------------------------------------------------------------


def _tables(report: DoctorReport) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("table", *_HEADS)]
    shown = sorted(report.tables, key=lambda table: (not _is_noted(table), table.table_key))
    left = shown[MOST_TABLES:]
    for table in shown[:MOST_TABLES]:
        rows.append(_row(table))
    if left:
        rows.append(_sum(f"… {len(left)} more", left))
    rows.append(_sum("all", report.tables))
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS) + 1)]
    for number, row in enumerate(rows):
        yield "  ".join(_cell(text, widths, at) for at, text in enumerate(row))
        if 0 < number <= len(shown[:MOST_TABLES]):
            yield from _notes(shown[number - 1])


def _cell(text: str, widths: Sequence[int], at: int) -> str:
    return text.ljust(widths[at]) if at == 0 else text.rjust(widths[at])


def _row(table: TableHealth) -> tuple[str, ...]:
    name = table.table_key if table.owned else f"{table.table_key} ({table.branch})"
    return (
        _short(name, _KEY),
        str(table.versions),
        str(table.fragments),
        str(table.small_fragments),
        str(table.rows),
        str(table.deleted_rows),
        size_text(table.size + table.index_size),
        "-" if not table.rows else f"{int(100 * table.covered)}%",
    )


def _sum(name: str, tables: Sequence[TableHealth]) -> tuple[str, ...]:
    rows = sum(table.rows for table in tables)
    return (
        name,
        str(sum(table.versions for table in tables)),
        str(sum(table.fragments for table in tables)),
        str(sum(table.small_fragments for table in tables)),
        str(rows),
        str(sum(table.deleted_rows for table in tables)),
        size_text(sum(table.size + table.index_size for table in tables)),
        "",
    )


def _is_noted(table: TableHealth) -> bool:
    return bool(table.error or table.head or table.reasons)


def _notes(table: TableHealth) -> Iterator[str]:
    if table.error:
        yield from _wrapped("    ", f"cannot be read: {table.error}")
    if table.head is not None:
        yield f"    the graph shows version {table.version}, the table is at {table.head}"
    for reason in table.reasons:
        yield from _wrapped("    ", reason)


# -- the graph ------------------------------------------------------------------------------------


def _graph(report: DoctorReport) -> Iterator[str]:
    versions = sum(each.versions for each in report.manifests)
    parts = max((each.fragments for each in report.manifests), default=0)
    yield from _said("manifest", f"{versions} versions, {parts} parts at most on a branch")
    names = ", ".join(report.branches[:8])
    more = len(report.branches) - 8
    yield from _said("branches", f"{names}, and {more} more" if more > 0 else names)
    yield from _said("tags", str(report.tags))
    oldest = report.oldest
    if oldest is None:
        yield from _said("oldest pin", "all branches and tags show the newest versions")
    else:
        yield from _said(
            "oldest pin",
            f"{oldest.table_key} version {oldest.version}, {oldest.behind} behind the newest, "
            f"by {oldest.kind} {oldest.name}",
        )
    yield from _said("writes", *_busy(report.writes, "none to settle"))
    yield from _said("staging", *_busy(report.staging, "none"))
    yield from _said("savings", *_savings(report))


def _busy(found: Sequence[Busy], none: str) -> Iterator[str]:
    if not found:
        yield none
    for each in found[:5]:
        if each.error:
            yield f"{each.operation}: {each.error}"
            continue
        where = f" on {each.branch}" if each.branch else ""
        what = f"{each.kind}{where}, " if each.kind else ""
        tables = counted(len(each.tables), "table")
        yield f"{each.operation}: {what}{age_text(each.age)} old, {tables}"
    if len(found) > 5:
        yield f"and {len(found) - 5} more"


def _savings(report: DoctorReport) -> Iterator[str]:
    fewer = sum(table.small_fragments for table in report.tables if table.owned)
    saved = sum(table.saved for table in report.tables if table.owned)
    yield f"optimize: {fewer} small parts, {size_text(saved)} of deleted rows"
    found = report.cleanup
    if found.why is not None:
        yield f"cleanup: not known, because {found.why}"
    else:
        freed = f"{found.versions} versions, {size_text(found.size)}"
        yield f"cleanup that keeps {found.keep} versions: {freed}"


def _said(label: str, *texts: str) -> Iterator[str]:
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
    for number, each in enumerate(report.advice, 1):
        # A command is never broken: it is there to be copied.
        yield f"  {number}. {each.command}"
        yield from _wrapped("     ", each.why)


def _wrapped(indent: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(escape(text), WIDTH, initial_indent=indent, subsequent_indent=indent)


def _short(text: str, most: int) -> str:
    """The end of a long text: that is what tells places and names apart."""
    text = escape(text)
    return text if len(text) <= most else "…" + text[-most + 1 :]
