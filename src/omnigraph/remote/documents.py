"""Responses of a server as the types that the embedded library returns.

What a response of an older server leaves out is empty. A document of another form raises
``ValueError``, ``KeyError`` or ``TypeError``; ``decoding`` turns them into a typed error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.client.server import unexpected_response
from omnigraph.commit.commits import Commit, CommitGroup
from omnigraph.commit.names import MAIN
from omnigraph.commit.receipts import LoadReceipt, Receipt, TableCounts
from omnigraph.errors import InputError, ServerUnavailable
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.api.stored_queries import StoredQuery
    from omnigraph.evolve.apply import SchemaApplied
    from omnigraph.lang.schema.migrate import MigrationPlan
    from omnigraph.write.validate.rules import Violation


@dataclass(frozen=True, slots=True)
class BranchTables:
    """The head of a branch: its tables, and its commit."""

    branch: str
    version: int
    tables: Mapping[str, dict[str, Any]]
    commit_id: str | None = None


@contextmanager
def decoding(base: str) -> Iterator[None]:
    """Raise the typed error for a document that has not the form of the contract."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, InputError):
        raise unexpected_response(base) from None


def read_output(document: Any) -> dict[str, Any]:
    """The rows of a query as the command line prints them, keys in the fixed order."""
    columns = document.get("columns") or []
    target = document["target"]
    rows = document["rows"]
    is_table = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    is_complete = isinstance(target, dict) and isinstance(rows, list)
    if not is_table or not is_complete or any(not isinstance(row, dict) for row in rows):
        raise TypeError("not the rows of a query")
    return {
        "query_name": _text(document["query_name"]),
        "target": {"branch": None, "snapshot": None, **target},
        "row_count": _whole(document["row_count"]),
        "columns": columns,
        "rows": rows,
    }


def receipt(document: Any) -> Receipt:
    """The receipt of a mutation."""
    if isinstance(document.get("receipt"), dict):
        return Receipt.from_json(document["receipt"])
    met = {"node:": _whole(document["affected_nodes"]), "edge:": _whole(document["affected_edges"])}
    commit_id, version = _head(document)
    return Receipt(commit_id, version, _text(document["branch"]), {}, document.get("actor_id"), met)


def load_receipt(document: Any) -> LoadReceipt:
    """The receipt of a load."""
    if isinstance(document.get("receipt"), dict):
        return LoadReceipt.from_json(document["receipt"])
    commit_id, version = _head(document)
    counts = {
        f"{kind}:{table['name']}": TableCounts(inserted=_whole(table["entities_loaded"]))
        for kind, key in (("node", "nodes"), ("edge", "edges"))
        for table in document.get(key, ())
    }
    return LoadReceipt(
        commit_id,
        version,
        _text(document["branch"]),
        counts,
        document.get("actor_id"),
        base_branch=document.get("base_branch"),
        branch_created=bool(document["branch_created"]),
        records=sum(table.inserted for table in counts.values()),
    )


def indexes_built(document: Any) -> int:
    """How many indexes a server built after a load; an older one builds none."""
    return _whole(document.get("indexes_built", 0))


def _head(document: Mapping[str, Any]) -> tuple[str | None, int]:
    made = document.get("commit")
    return (None, 0) if made is None else (commit(made).commit_id, commit(made).version)


def commit(document: Any) -> Commit:
    """One commit."""
    completes = document.get("completes", ())
    group = document.get("group")
    return Commit(
        _text(document["graph_commit_id"]),
        document["manifest_branch"] or MAIN,
        _whole(document["manifest_version"]),
        _whole(document["created_at"]),
        document["parent_commit_id"],
        document["merged_parent_commit_id"],
        document["actor_id"],
        (completes,) if isinstance(completes, str) else tuple(completes),
        document.get("kind"),
        None if group is None else CommitGroup(group["id"], group["index"], group["size"]),
    )


def commits(document: Any) -> list[Commit]:
    """The commits of a branch, newest first, in whatever order the server lists them."""
    listed = [commit(item) for item in document["commits"]]
    is_oldest_first = bool(listed) and listed[0].created_at < listed[-1].created_at
    return listed[::-1] if is_oldest_first else listed


def branches(document: Any) -> list[str]:
    """The names of the branches, ``main`` first."""
    names = [_text(name) for name in document["branches"]]
    return sorted(names, key=lambda name: (name != MAIN, name))


def branch_tables(document: Any) -> BranchTables:
    """The head of a branch."""
    tables = {
        _text(table["table_key"]): {
            "path": table["table_path"],
            "version": _whole(table["table_version"]),
            "branch": table["table_branch"] or MAIN,
            "rows": _whole(table["row_count"]),
        }
        for table in document["tables"]
    }
    version = _whole(document["manifest_version"])
    return BranchTables(_text(document["branch"]), version, tables, document.get("graph_commit_id"))


def head_of(tables: BranchTables, newest: list[Commit]) -> str:
    """The head of a branch, from its newest commits.

    Raises:
        ServerUnavailable: the branch has moved on meanwhile.
    """
    if not newest or newest[0].version > tables.version:
        raise ServerUnavailable(
            f"branch '{tables.branch}' changed while it was read", hint="try again in a moment"
        )
    return newest[0].commit_id


def schema_applied(document: Any) -> SchemaApplied:
    """The outcome of a schema change."""
    from omnigraph.evolve.apply import SchemaApplied
    from omnigraph.lang.schema.steps import step_from_json

    return SchemaApplied(
        bool(document["supported"]),
        bool(document["applied"]),
        _whole(document["manifest_version"]),
        tuple(step_from_json(step) for step in document["steps"]),
        document.get("commit_id"),
        tuple(_violation(item) for item in document.get("violations", ())),
        tuple(document.get("cleared", ())),
        tuple(document.get("broken_queries", ())),
    )


def _violation(item: Mapping[str, Any]) -> Violation:
    from omnigraph.client.refusals import error_class
    from omnigraph.write.validate.rules import Violation

    own = ("code", "table_key", "id", "message")
    return Violation(
        error_class(item["code"]),
        _text(item["table_key"]),
        item["id"],
        _text(item["message"]),
        details={key: value for key, value in item.items() if key not in own},
    )


def migration_plan(document: Any) -> MigrationPlan:
    """The steps of a schema change."""
    from omnigraph.lang.schema.migrate import MigrationPlan
    from omnigraph.lang.schema.steps import step_from_json

    steps = tuple(step_from_json(step) for step in document["steps"])
    return MigrationPlan(bool(document["supported"]), steps)


def schema_source(document: Any) -> str:
    """The text of the schema."""
    return _text(document["schema_source"])


def stored_queries(document: Any) -> list[StoredQuery]:
    """The stored queries, by name."""
    return [stored_query(entry) for entry in document["queries"]]


def stored_query(document: Any) -> StoredQuery:
    """One stored query."""
    from omnigraph.api.stored_queries import StoredQuery

    return StoredQuery(
        _text(document["name"]),
        bool(document["mutation"]),
        {param["name"]: _param(param) for param in document["params"]},
        document.get("description"),
        document.get("instruction"),
        document.get("deprecated"),
        document.get("broken"),
        document.get("params_schema"),
        document.get("result_schema"),
    )


def _param(param: Mapping[str, Any]) -> str:
    """The type of a parameter; older servers only tell its kind."""
    if "type" in param:
        return _text(param["type"])
    kind = _text(param["kind"])
    if "item_kind" in param:
        kind = f"[{param['item_kind']}]"
    if "vector_dim" in param:
        kind = f"{kind}({param['vector_dim']})"
    return f"{kind}?" if param["nullable"] else kind


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    return value
