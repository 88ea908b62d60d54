"""The files of a first cluster, for ``cluster init``."""

from __future__ import annotations

from pathlib import Path

from omnigraph.cluster.graph_ids import is_graph_id
from omnigraph.cluster.resources import is_name
from omnigraph.errors import AlreadyExists, InputError, StorageError

_CONFIG = """\
version: 1
# storage: s3://bucket/prefix   (default: this directory)
graphs:
  {graph}:
    schema: {graph}.pg
    queries: queries/
"""
_SCHEMA = """\
node Note {
  slug: String @key
  title: String
}
"""
_QUERY = """\
query notes() {
  match { $n: Note }
  return { $n.slug, $n.title }
  order { $n.slug }
}
"""


def scaffold(directory: Path, graph: str) -> list[str]:
    """Write the files of a cluster with one graph; returns their names."""
    if not is_graph_id(graph) or not is_name(graph):
        raise InputError(f"invalid graph id '{graph}'; expected letters, digits and -")
    files = {
        "cluster.yaml": _CONFIG.format(graph=graph),
        f"{graph}.pg": _SCHEMA,
        "queries/notes.gq": _QUERY,
    }
    existing = [name for name in files if (directory / name).exists()]
    if existing:
        raise AlreadyExists(
            f"'{directory / existing[0]}' exists already", hint="choose another directory"
        )
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
        raise StorageError(f"cannot write to '{directory}': {reason}") from None
    return list(files)
