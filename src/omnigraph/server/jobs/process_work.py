"""The work of a job in a process of its own, as it is sent there: everything here is pickled.

The process opens the graph as the server has it, with the same policy, and acts for the same actor:
it is refused whatever the engine refuses to that actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from omnigraph.api.gate import WriteGate
from omnigraph.api.graph import Graph
from omnigraph.embed import EmbeddingConfig
from omnigraph.errors import OmniGraphError
from omnigraph.identity import Identity
from omnigraph.progress import OnProgress, Progress
from omnigraph.read.limits import Cancel
from omnigraph.records import dataclass
from omnigraph.server.config import LogOptions
from omnigraph.write.load.job import LoadMode

_STREAM = "<stream>"


class ProcessWork(Protocol):
    """One call of the library."""

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        """Make the call; the result is pickled too."""
        ...


@dataclass(frozen=True, slots=True)
class OptimizeWork:
    """Compacts a branch on Spark."""

    branch: str
    if_needed: bool

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        return graph.maintenance.optimize(
            self.branch, engine="spark", if_needed=self.if_needed, on_progress=on_progress
        )


@dataclass(frozen=True, slots=True)
class FillWork:
    """Embeds texts on Spark; ``options`` are arguments of ``embeddings.fill``."""

    types: Sequence[str] | None
    properties: Sequence[str] | None
    branch: str
    options: Mapping[str, Any]

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        return graph.embeddings.fill(
            self.types,
            self.properties,
            self.branch,
            **self.options,
            engine="spark",
            cancel=cancel,
            on_progress=on_progress,
        )


@dataclass(frozen=True, slots=True)
class LoadWork:
    """Loads lines of JSON on Spark; ``options`` are arguments of ``Graph.load``."""

    path: str
    mode: LoadMode
    branch: str
    base: str | None
    options: Mapping[str, Any]

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        try:
            return graph.load(
                self.path,
                self.mode,
                self.branch,
                self.base,
                format="ndjson",
                engine="spark",
                **self.options,
                on_progress=on_progress,
            )
        except OmniGraphError as error:
            # The client sent a stream: a file of the server is none of its business.
            error.message = error.message.replace(self.path, _STREAM)
            error.args = (error.message,)
            error.details = {
                name: _STREAM if value == self.path else value
                for name, value in error.details.items()
            }
            raise


@dataclass(frozen=True, slots=True)
class GraphAddress:
    """How to open a graph as another process has it open."""

    uri: str
    options: Mapping[str, str] = field(repr=False)
    embedding: EmbeddingConfig
    policy: WriteGate | None
    """As it is at this moment."""
    identity: Identity | None

    @classmethod
    def of(cls, graph: Graph) -> GraphAddress:
        """That of an open graph, for its actor."""
        handle = graph._handle
        root = handle.store.root
        return cls(
            root.uri,
            dict(root.options),
            handle.embedders.config,
            handle.policy,
            handle.identity,
        )

    def open(self) -> Graph:
        """The graph, for the actor. The paths in its calls are ours, never those of a client."""
        graph = Graph.open(
            self.uri,
            storage_options=self.options or None,
            embedding=self.embedding,
            policy=self.policy,
        )
        return graph if self.identity is None else graph.for_actor(self.identity)


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """A job for a process: its id becomes part of the commits."""

    job_id: str
    graph: GraphAddress
    work: ProcessWork
    log: LogOptions


# -- what is said --------------------------------------------------------------------------------

STOP = "stop"
"""What the server sends to end the work at its next safe point."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The work is done."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The work is not done: a typed error, packed, or the trace of another, for the log."""

    packed: bytes | None
    trace: str = ""


Message: TypeAlias = Progress | Finished | Failed
