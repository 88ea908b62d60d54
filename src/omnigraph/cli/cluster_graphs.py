"""Where a cluster's graphs lie: only its ledger is read, so a damaged catalog is no hindrance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.api.handle import parse_location
from omnigraph.cli.operator_config import Operator
from omnigraph.cli.scopes import is_local
from omnigraph.errors import InputError, StorageMissing
from omnigraph.settings import Settings
from omnigraph.storage.objects.graph_paths import escaped, is_branch
from omnigraph.storage.objects.store import ObjectStore

LEDGER = "__cluster/state.json"


def graph_of_cluster(target: str, graph: str | None, operator: Operator) -> str:
    """The storage of one applied graph of a cluster."""
    root = cluster_root(target, operator)
    graphs = applied_graphs(target, root)
    if graph is None:
        if not graphs:
            raise InputError(f"cluster '{target}' has no applied graphs; run cluster apply first")
        if len(graphs) > 1:
            raise InputError(
                f"cluster '{target}' has several graphs ({', '.join(graphs)}): pass --graph <id>"
            )
        graph = graphs[0]
    if graph not in graphs:
        raise InputError(
            f"graph '{graph}' is not applied in cluster '{target}'; "
            f"applied: {', '.join(graphs) or 'none'}; run cluster apply to add it"
        )
    return f"{root}/graphs/{graph}.omni"


def cluster_root(target: str, operator: Operator) -> str:
    """A cluster's storage: by name, by address, or as the ``cluster.yaml`` of a directory says."""
    place = operator.clusters.get(target, target).rstrip("/")
    if not is_local(place):
        return place
    declared = Path(place.removeprefix("file://"), "cluster.yaml")
    if declared.is_file():
        import yaml

        try:
            tree: Any = yaml.safe_load(declared.read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            raise InputError(f"could not read '{declared}'") from None
        storage = tree.get("storage") if isinstance(tree, dict) else None
        if isinstance(storage, str) and storage.strip():
            found = storage.strip().rstrip("/")
            return found if "://" in found else str(Path(declared.parent, found))
    return place


def applied_graphs(target: str, root: str) -> list[str]:
    """The graphs that the ledger of a cluster names."""
    text = _ledger(root)
    try:
        resources = json.loads(text)["applied_revision"]["resources"] if text is not None else {}
        graphs = sorted(key.partition(".")[2] for key in resources if key.startswith("graph."))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"the ledger of cluster '{target}' cannot be read") from None
    for graph in graphs:
        # The id becomes the name of a directory, so it must be a single plain segment.
        if "/" in graph or not is_branch(graph):
            raise InputError(
                f"the ledger of cluster '{target}' names the graph {escaped(graph)}, "
                "which is not an id of a graph",
                hint="the ledger is damaged or forged: run cluster apply again",
            )
    return graphs


def refuse_inside_cluster(uri: str) -> None:
    """A graph that a cluster manages is made and changed by the cluster."""
    parent, _, name = parse_location(uri, None, Settings.from_environ()).uri.rpartition("/")
    above, _, folder = parent.rpartition("/")
    root = above or "/"
    if name.endswith(".omni") and folder == "graphs" and _ledger(root) is not None:
        raise InputError(
            f"'{uri}' is inside cluster '{root}'", hint="change it with `cluster apply`"
        )


def _ledger(address: str) -> str | None:
    """The text of a ledger, if there is one; a store that cannot be asked is loud."""
    root = parse_location(address, None, Settings.from_environ())
    if root.is_missing():
        return None
    try:
        return ObjectStore(root).read(LEDGER)
    except StorageMissing:
        return None
