"""Verify for a graph that is open, and for one that does not open any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TypeAlias

from omnigraph.api.addresses import root_of
from omnigraph.api.arguments import public
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.store import GraphStore
from omnigraph.errors import GraphNotFound
from omnigraph.maintain.verify import VerifyReport, verify
from omnigraph.settings import Settings


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verify is: of its present phase, so many shares of so many."""

    phase: str
    done: int
    total: int


Progress: TypeAlias = Callable[[VerifyProgress], None]


@public
def verify_graph(
    uri: str | PathLike[str],
    branch: str | None = None,
    *,
    checksums: bool = True,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> VerifyReport:
    """``graph.maintenance.verify`` without opening the graph, for one too damaged to be opened."""
    store = GraphStore(root_of(uri, storage_options))
    if not store.schema_files.present() and not store.objects.exists("__manifest"):
        raise GraphNotFound(
            f"there is no graph at '{store.root.uri}'", hint="create one with Graph.init"
        )
    return run_verify(store, branch, checksums=checksums, progress=progress)


def run_verify(
    store: GraphStore, branch: str | None, *, checksums: bool, progress: Progress | None
) -> VerifyReport:
    """Look at one branch, or at all when none is named."""
    from omnigraph.api.maintenance import concurrency

    def tell(phase: str, done: int, total: int) -> None:
        if progress is not None:
            progress(VerifyProgress(phase, done, total))

    name = None if branch is None else branch_label(normal_branch(branch))
    many = concurrency(Settings.from_environ())
    return verify(store, name, checksums=checksums, many=many, tell=tell)
