"""Looks at the graphs themselves: whether they exist, open, and with which schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from omnigraph.cluster.at_once import GRAPHS_AT_ONCE, at_once
from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.draft import APPLIED, LedgerDraft
from omnigraph.cluster.ledger import GraphObservation, ResourceStatus
from omnigraph.cluster.resources import content_digest
from omnigraph.cluster.storage import ClusterStorage, timestamp
from omnigraph.errors import GraphNotFound, OmniGraphError, StorageError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """What is stored where a graph belongs."""

    exists: bool
    is_interrupted: bool = False
    """Whether there is only what an interrupted creation left: no data."""
    digest: str | None = None
    manifest_version: int | None = None
    catalog: Catalog | None = None
    error: str | None = None

    @property
    def opens(self) -> bool:
        return self.digest is not None


def look_at_graph(storage: ClusterStorage, graph: str) -> LiveGraph:
    """Open a graph for reading and take the digest of its schema.

    Raises ``ClusterStop`` if it is uncertain whether the graph exists.
    """
    from omnigraph.api.graph import Graph

    try:
        if not storage.has_graph_root(graph):
            return LiveGraph(False)
    except StorageError as error:
        raise ClusterStop(
            "graph_probe_error",
            f"graph.{graph}",
            f"cannot find out whether the graph exists: {error.message}; nothing was changed",
        ) from error
    try:
        with Graph.open(storage.graph_uri(graph), "r", storage_options=storage.options) as opened:
            return LiveGraph(
                True,
                digest=content_digest(opened.schema.text().encode("utf-8")),
                manifest_version=opened.snapshot().version,
                catalog=opened.catalog,
            )
    except GraphNotFound as error:
        return LiveGraph(True, is_interrupted=True, error=error.message)
    except OmniGraphError as error:
        return LiveGraph(True, error=error.message)


def look_at_graphs(
    storage: ClusterStorage, graphs: Sequence[str]
) -> Iterator[tuple[str, LiveGraph]]:
    """``look_at_graph`` for many of them, in their order."""
    look = partial(look_at_graph, storage)
    looks = at_once(look, graphs, GRAPHS_AT_ONCE, is_local=storage.location.is_local)
    return zip(graphs, looks, strict=True)


def same_schema(live: LiveGraph, desired: DesiredState, graph: str) -> bool:
    """Whether a graph has the declared schema: the same text, or one without any difference.

    A text that differs in comments only does not change a graph, so it keeps the former one.
    """
    from omnigraph.lang.schema.migrate import plan_migration

    wanted = desired.resources[f"schema.{graph}"].digest
    if live.digest == wanted:
        return True
    catalog = desired.catalogs.get(graph)
    if live.catalog is None or catalog is None:
        return False
    return not plan_migration(live.catalog, catalog).steps


def observe_graphs(
    storage: ClusterStorage, desired: DesiredState, draft: LedgerDraft, log: DiagnosticLog
) -> None:
    """Record what every declared graph is like now."""
    failed = []
    for graph, live in look_at_graphs(storage, sorted(desired.config.graphs)):
        wanted = desired.resources[f"schema.{graph}"].digest
        matches = live.opens and same_schema(live, desired, graph)
        draft.observe(
            GraphObservation(
                address=f"graph.{graph}",
                graph_uri=storage.graph_uri(graph),
                observed_at=timestamp(),
                exists=live.exists,
                manifest_version=live.manifest_version,
                schema_digest=live.digest,
                desired_schema_digest=wanted,
                schema_matches_desired=None if live.exists and not live.opens else matches,
                error=live.error,
            )
        )
        if live.exists and not live.opens:
            failed.append(f"graph.{graph}: {live.error}")
        _record(draft, graph, live, wanted if matches else live.digest, matches)
    if failed:
        log.error("graph_observation_error", "graphs", "; ".join(failed))


def _record(
    draft: LedgerDraft, graph: str, live: LiveGraph, digest: str | None, matches: bool
) -> None:
    both = (f"graph.{graph}", f"schema.{graph}")
    if not live.exists:
        for address in both:
            draft.resources.pop(address, None)
        message = f"there is nothing at {graph}.omni"
        draft.set_status(both, ResourceStatus("drifted", ("graph_missing",), message))
    elif digest is None:
        draft.set_status(both, ResourceStatus("error", ("graph_observation_error",), live.error))
    else:
        draft.record_schema(graph, digest)
        if matches:
            draft.set_status(both, APPLIED)
        else:
            message = "the schema of the graph is not the declared one"
            draft.set_status(both, ResourceStatus("drifted", ("schema_mismatch",), message))
