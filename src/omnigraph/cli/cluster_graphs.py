"""Locates the graphs of a cluster by its ledger alone, so a damaged catalog does not matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.api.handle import parse_location
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.scopes import is_local
from omnigraph.errors import InputError, StorageMissing
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import escaped, is_branch
from omnigraph.storage.objects.store import ObjectStore

LEDGER = "__cluster/state.json"


def find_cluster_graph(target: str, graph: str | None, operator: OperatorConfig) -> str:
    """Find the storage of one applied graph of a cluster."""
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


def cluster_root(target: str, operator: OperatorConfig) -> str:
    """A cluster's storage root: by name, by address, or from a directory's ``cluster.yaml``."""
    root = operator.clusters.get(target, target).rstrip("/")
    if not is_local(root):
        return root
    config = Path(root.removeprefix("file://"), "cluster.yaml")
    if config.is_file():
        import yaml

        try:
            tree: Any = yaml.safe_load(config.read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            raise InputError(f"could not read '{config}'") from None
        storage = tree.get("storage") if isinstance(tree, dict) else None
        if isinstance(storage, str) and storage.strip():
            storage = storage.strip().rstrip("/")
            return storage if "://" in storage else str(Path(config.parent, storage))
    return root


def applied_graphs(target: str, root: str) -> list[str]:
    """The graph ids in the ledger of a cluster."""
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
                f"the ledger of cluster '{target}' contains the invalid graph id {escaped(graph)}",
                hint="the ledger is damaged or forged: run cluster apply again",
            )
    return graphs


def refuse_inside_cluster(uri: str) -> None:
    """Raise if a cluster manages this graph: only ``cluster apply`` may create or change it."""
    parent, _, name = parse_location(uri, None, Settings.from_environ()).uri.rpartition("/")
    above, _, folder = parent.rpartition("/")
    root = above or "/"
    if name.endswith(".omni") and folder == "graphs" and _ledger(root) is not None:
        raise InputError(
            f"'{uri}' is inside cluster '{root}'", hint="change it with `cluster apply`"
        )


def _ledger(address: str) -> str | None:
    """The text of a ledger; ``None`` if there is none. Raises if the store is unreachable."""
    root = parse_location(address, None, Settings.from_environ())
    if root.is_missing():
        return None
    try:
        return ObjectStore(root).read(LEDGER)
    except StorageMissing:
        return None
