"""Responses about the history of a graph as the types that the embedded library returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from omnigraph.api.neighbours import Neighbour
from omnigraph.api.query import Explanation
from omnigraph.commit.commits import Tag
from omnigraph.commit.metadata import SchemaEvent
from omnigraph.commit.receipts import TableCounts
from omnigraph.merge.blame import Blame
from omnigraph.merge.change_filter import Operation
from omnigraph.merge.conflicts import ConflictKind, Conflicts, RowConflict
from omnigraph.merge.diff import Change, Diff
from omnigraph.merge.pages import ChangeBlock, ChangePage
from omnigraph.merge.run import MergeReport, Outcome
from omnigraph.records import dataclass
from omnigraph.remote.documents import commit as commit_of

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# -- changes --------------------------------------------------------------------------------------


def change(document: Any) -> Change:
    """One changed row."""
    return Change(
        document["table_key"],
        document["kind"],
        document["type_name"],
        document["id"],
        Operation(document["op"]),
        document["before"],
        document["after"],
    )


def change_block(document: Any) -> ChangeBlock:
    """The changes of one commit, or a part of them."""
    return ChangeBlock(
        commit_of(document["cause"]),
        tuple(change(row) for row in document["changes"]),
        bool(document["is_complete"]),
        _events(document),
        str(document["cursor"]),
    )


def change_page(document: Any) -> ChangePage:
    """A page of the feed."""
    blocks = tuple(change_block(block) for block in document["blocks"])
    return ChangePage(blocks, str(document["cursor"]), bool(document["caught_up"]))


def commit_page(document: Any, cursor: str | None) -> ChangePage:
    """The changes of one commit; ``cursor`` is that of the request."""
    token = document.get("next_page_token")
    position, is_complete = (cursor or "", True) if token is None else (str(token), False)
    rows = tuple(change(row) for row in document["changes"])
    events = _events(document)
    block = ChangeBlock(commit_of(document["cause"]), rows, is_complete, events, position)
    return ChangePage((block,) if rows or events else (), position, is_complete)


def _events(document: Mapping[str, Any]) -> tuple[SchemaEvent, ...]:
    return tuple(SchemaEvent.from_json(event) for event in document["schema_events"])


def diff(document: Any) -> Diff:
    """The difference between two states."""
    return Diff(
        int(document["from"]["manifest_version"]),
        int(document["to"]["manifest_version"]),
        str(document["to"]["branch"]),
        tuple(change(row) for row in document["changes"]),
        _tables(document["tables"]),
        _events(document),
    )


def _tables(tables: Mapping[str, Any]) -> dict[str, TableCounts]:
    return {key: TableCounts(**counts) for key, counts in tables.items()}


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """The last line of a baseline."""

    commit_id: str
    cursor: str
    schema: Mapping[str, Any]


def baseline_record(document: Any) -> BaselineRecord:
    """The last line of a baseline."""
    record = document["baseline"]
    commit_id, cursor = str(record["snapshot_commit_id"]), str(record["resume_cursor"])
    return BaselineRecord(commit_id, cursor, dict(record["schema"]))


def blame(document: Any) -> Blame:
    """The last change of a row."""
    origin = document["origin"]
    return Blame(
        commit_of(document["commit"]),
        str(document["op"]),
        None if origin is None else commit_of(origin),
    )


# -- merges and tags ------------------------------------------------------------------------------


def merge_report(document: Any) -> MergeReport:
    """The report of a merge, or of its preview."""
    made = document.get("commit")
    return MergeReport(
        Outcome(document["outcome"]),
        str(document["source"]),
        str(document["target"]),
        document.get("base_commit_id"),
        None if made is None else commit_of(made).commit_id,
        document.get("manifest_version", 0),
        _tables(document.get("tables", {})),
        Conflicts(tuple(_conflict(row) for row in document.get("conflicts", ()))),
        document.get("resolved", {}),
        document.get("branch_deleted"),
        document.get("branch_delete_error"),
    )


def _conflict(document: Mapping[str, Any]) -> RowConflict:
    return RowConflict(
        document["table_key"],
        document["row_id"],
        ConflictKind(document["kind"]),
        document["message"],
        tuple(document["properties"]),
        document["base"],
        document["ours"],
        document["theirs"],
    )


def tag(document: Any) -> Tag:
    """One tag."""
    return Tag(
        str(document["name"]),
        str(document["graph_commit_id"]),
        int(document["created_at"]),
        document["actor_id"],
        document.get("shows"),
    )


def tags(document: Any) -> list[Tag]:
    """All tags."""
    return [tag(row) for row in document["tags"]]


# -- rows and plans -------------------------------------------------------------------------------


def explanation(document: Any) -> Explanation:
    """The plan of a query."""
    return Explanation(str(document["text"]), dict(document["plan"]))


def entity(document: Any) -> dict[str, Any]:
    """One node or edge, with values of Python."""
    return _row(document["entity"], document["types"])


def neighbours(document: Any) -> list[Neighbour]:
    """The neighbours of a node."""
    types = document["types"]
    return [
        Neighbour(
            row["edge_type"],
            row["direction"],
            _row(row["edge"], types[row["edge_type"]]),
            row["node_type"],
            _row(row["node"], types[row["node_type"]]),
        )
        for row in document["neighbours"]
    ]


def _row(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    return {name: _value(value, types.get(name, "String")) for name, value in row.items()}


def _value(value: Any, type_name: str) -> Any:
    """A value of JSON as the value of Python that the embedded library returns.

    >>> _value("2026-01-31", "Date?"), _value(["NaN"], "[F64]")
    (datetime.date(2026, 1, 31), [nan])
    """
    if isinstance(value, list):
        return [_value(item, type_name) for item in value]
    if not isinstance(value, str):
        return value
    scalar = type_name.strip("[]?").partition("(")[0]
    match scalar:
        case "Date":
            return date.fromisoformat(value)
        case "DateTime":
            return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
        case "F32" | "F64" | "Vector":
            return _NUMBERS[value]
    return value
