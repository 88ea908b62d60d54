"""What schema changes mean: for the data of a graph, and for the queries that are in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.diff import ResourceChange
from omnigraph.cluster.ledger import LedgerState
from omnigraph.cluster.payloads import payload_path
from omnigraph.cluster.resources import address_parts, content_digest, kind_of, owner_of
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.parser import read_queries, select_query


def preview_migration(
    storage: ClusterStorage, desired: DesiredState, change: ResourceChange, log: DiagnosticLog
) -> dict[str, Any] | None:
    """The steps of a schema change on the live graph, how many rows its types have, and rows that
    do not fit; ``None`` after noting why it is not known.
    """
    from omnigraph.api.graph import Graph

    graph = owner_of(change.resource)
    assert graph is not None
    text = desired.schema_text(graph)
    try:
        with Graph.open(
            storage.graph_uri(graph), "r", storage_options=storage.options, local_files=False
        ) as opened:
            plan = opened.schema.plan(text)
            document = plan.to_json()
            if plan.supported and plan.steps:
                document["rows"] = _rows(opened.snapshot().tables, document["steps"])
                preview = opened.schema.apply(text, dry_run=True).to_json()
                if preview["violations"]:
                    document["violations"] = preview["violations"]
            return document
    except OmniGraphError as error:
        message = f"the migration cannot be shown: {error.message}"
        log.warning("schema_preview_unavailable", change.resource, message)
        return None


def _rows(tables: Any, steps: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The rows of the existing types that the steps are about."""
    names = {step.get("type_name") or step.get("name") or step.get("from") for step in steps}
    return {
        key: table["rows"]
        for key, table in sorted(tables.items())
        if key.partition(":")[2] in names
    }


def broken_queries(
    storage: ClusterStorage,
    desired: DesiredState,
    state: LedgerState,
    changes: Sequence[ResourceChange],
) -> Iterator[dict[str, Any]]:
    """Applied queries that do not fit the new schema of their graph.

    Servers have them until they take over the new ledger. ``replaced`` says whether the same plan
    changes or deletes the query.
    """
    altered = {change.resource for change in changes if kind_of(change.resource) == "query"}
    migrated = {
        owner_of(change.resource)
        for change in changes
        if kind_of(change.resource) == "schema" and change.operation == "update"
    }
    for address, resource in sorted(state.resources.items()) if migrated else ():
        kind, names = address_parts(address)
        if kind != "query" or names[0] not in migrated:
            continue
        message = _breakage(storage, desired, names[0], address, names[1], resource.digest)
        if message is not None:
            yield {"query": address, "message": message, "replaced": address in altered}


def _breakage(
    storage: ClusterStorage,
    desired: DesiredState,
    graph: str,
    address: str,
    name: str,
    digest: str,
) -> str | None:
    from omnigraph.plan import plan_query

    try:
        content = storage.objects.read_bytes(payload_path(address, digest))
        if content_digest(content) != digest:
            return None
        source = Source(f"{name}.gq", content.decode("utf-8"))
        plan_query(desired.catalogs[graph], source, select_query(read_queries(source), name))
    except OmniGraphError as error:
        return error.message
    except UnicodeDecodeError:
        return None
    return None
