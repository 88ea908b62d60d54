"""The ids of graphs in addresses of the server."""

from __future__ import annotations

import re

from omnigraph.cluster.graph_ids import LONGEST, is_graph_id


def graph_id_of(uri: str) -> str:
    """The id of a graph that is served from its store: the last part of its address.

    A suffix ``.omni`` is dropped, runs of other characters than letters, digits and ``-`` become
    one ``-``. What then is empty or reserved gets ``graph-`` in front.

    >>> [graph_id_of(uri) for uri in ("/data/my kb.omni/", "s3://bucket/kb", "graphs.omni", "_")]
    ['my-kb', 'kb', 'graph-graphs', 'graph']
    """
    name = uri.rstrip("/").rpartition("/")[2].removesuffix(".omni")
    cleaned = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:LONGEST].rstrip("-")
    if not cleaned:
        return "graph"
    return cleaned if is_graph_id(cleaned) else f"graph-{cleaned}"
