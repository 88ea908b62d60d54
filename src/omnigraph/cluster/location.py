"""Locates a cluster and its graphs, by the ledger alone: a damaged catalog does not matter."""

from __future__ import annotations

import json
from pathlib import Path

from omnigraph.api.handle import parse_location
from omnigraph.errors import InputError, StorageMissing
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import escaped, is_branch
from omnigraph.storage.objects.store import ObjectStore

LEDGER = "__cluster/state.json"
CONFIG = "cluster.yaml"


def _is_local(address: str) -> bool:
    """Whether an address is a path on this machine."""
    return "://" not in address or address.startswith("file://")


def cluster_root(target: str) -> str:
    """The storage root of a cluster: itself, or the one that its ``cluster.yaml`` names.

    A relative ``storage`` is relative to the directory of the file.
    """
    root = target.rstrip("/") or target
    if not _is_local(root):
        return root
    config = Path(root.removeprefix("file://"), CONFIG)
    if not config.is_file():
        return root
    storage = _storage_of(config)
    if storage is None:
        return root
    return storage if "://" in storage else str(Path(config.parent, storage))


def _storage_of(config: Path) -> str | None:
    from omnigraph.yaml_tree import YamlProblem, parse_yaml

    try:
        entries = parse_yaml(config.read_text("utf-8")).mapping()
        storage = entries["storage"].text() if "storage" in entries else ""
    except YamlProblem as problem:
        raise InputError(
            f"could not read '{config}': line {problem.line}: {problem.message}",
            details={"file": str(config), "line": problem.line},
        ) from None
    except (OSError, ValueError):
        raise InputError(f"could not read '{config}'", details={"file": str(config)}) from None
    return storage.strip().rstrip("/") or None


def graph_uri(root: str, graph: str) -> str:
    """Where a graph of a cluster is stored."""
    return f"{root}/graphs/{graph}.omni"


def find_graph(target: str, root: str, graph: str | None, settings: Settings) -> str:
    """Find the storage of one applied graph of a cluster; ``target`` is its name in messages."""
    graphs = applied_graphs(target, root, settings)
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
    return graph_uri(root, graph)


def applied_graphs(target: str, root: str, settings: Settings) -> list[str]:
    """The graph ids in the ledger of a cluster."""
    text = _ledger(root, settings)
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


def refuse_inside_cluster(uri: str, settings: Settings) -> None:
    """Raise if a cluster manages this graph: only ``cluster apply`` may create or change it."""
    parent, _, name = parse_location(uri, None, settings).uri.rpartition("/")
    above, _, folder = parent.rpartition("/")
    root = above or "/"
    if name.endswith(".omni") and folder == "graphs" and _ledger(root, settings) is not None:
        raise InputError(
            f"'{uri}' is inside cluster '{root}'", hint="change it with `cluster apply`"
        )


def _ledger(address: str, settings: Settings) -> str | None:
    """The text of a ledger; ``None`` if there is none. Raises if the store is unreachable."""
    root = parse_location(address, None, settings)
    if root.is_missing():
        return None
    try:
        return ObjectStore(root).read(LEDGER)
    except StorageMissing:
        return None
