"""A graph for Spark programs: writes several frames in one commit, reads types as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.receipts import LoadReceipt
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.progress import OnProgress
from omnigraph.settings import Settings
from omnigraph.spark.load.frames import frame_evaluator, frame_reader, spark_frames
from omnigraph.spark.load.joined_keys import KeyJoins
from omnigraph.spark.session.engine import resolve_spark
from omnigraph.spark.session.opening import opened
from omnigraph.spark.session.tasks import SparkExecutor
from omnigraph.spark.source.datasource import FORMAT, register
from omnigraph.write.conform import find_type
from omnigraph.write.load.job import LoadDestination, LoadJob, load_mode
from omnigraph.write.load.run import load_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkGraph:
    """A graph, or the address of one, and the session that works on it.

    Without a session, the session of the frames is used.
    """

    def __init__(
        self,
        graph: Any,
        *,
        spark: SparkSession | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = None if isinstance(graph, str | PathLike) else graph
        if self._graph is not None and not hasattr(self._graph, "load"):
            raise InputError(f"{type(graph).__name__} is neither a graph nor an address of one")
        self.uri: str = fspath(graph) if self._graph is None else self._graph.uri
        self._spark = spark
        self._options = storage_options
        if self._graph is not None and storage_options is None:
            self._options = self._graph.storage_options or None

    def write(
        self,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: str = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        *,
        rejects: str | PathLike[str] | None = None,
        max_rejects: int | None = None,
        strict_properties: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        actor: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Write frames by the names of their types, all in one commit.

        Like ``Graph.load``: each frame is evaluated once, all rules are checked, and an invalid row
        fails the write unless ``max_rejects`` or ``rejects`` allow rejects.
        """
        if self._graph is not None:
            receipt: LoadReceipt = self._graph.load(
                _named(self._graph.catalog, nodes or {}, edges or {}),
                mode,
                branch,
                from_branch,
                engine="spark",
                spark=self._spark,
                rejects=rejects,
                max_rejects=max_rejects,
                strict_properties=strict_properties,
                dry_run=dry_run,
                on_progress=on_progress,
                actor=actor,
                if_commit=if_commit,
                idempotency_key=idempotency_key,
            )
            return receipt
        here = opened(self.uri, self._options, writable=True)
        data = _named(here.catalog, nodes or {}, edges or {})
        if max_rejects is None:
            max_rejects = 0 if rejects is None else 2**63
        job = LoadJob(
            data,
            load_mode(mode),
            rejects=rejects,
            max_rejects=max_rejects,
            strict_properties=strict_properties,
            on_progress=on_progress,
        )
        destination = LoadDestination(
            branch, from_branch, actor, if_commit, idempotency_key, dry_run
        )
        frames = spark_frames(data)
        session = self._spark or (frames[0].sparkSession if frames else None)
        settings = Settings.from_environ()
        with resolve_spark(session, settings.spark_options()) as running:
            joins = KeyJoins(running, settings.spark_key_bytes)
            executor = SparkExecutor(running, job.report_tasks)
            reader = frame_reader(frame_evaluator(on_progress), executor, joins=joins)
            return load_into(here.store, here.catalog, job, destination, reader)

    def read(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        branch: str = "main",
        *,
        snapshot: str | None = None,
        tag: str | None = None,
        version: int | None = None,
    ) -> DataFrame:
        """The rows of a type as a frame, pinned to the state at the time of the call."""
        if self._spark is None:
            raise InputError("reading needs a session", hint="pass spark= to SparkGraph")
        if (snapshot, tag, version) == (None, None, None):
            # Spark Connect would resolve the state again for every use of the frame.
            store = opened(self.uri, self._options).store
            version = SnapshotRef(branch).resolve(store).manifest_version
        register(self._spark, storage_options=self._options)
        options = {
            "type": type_name,
            "branch": branch,
            "columns": None if columns is None else ",".join(columns),
            "filter": filter,
            "snapshot": snapshot,
            "tag": tag,
            "version": None if version is None else str(version),
        }
        given = {name: value for name, value in options.items() if value is not None}
        return self._spark.read.format(FORMAT).options(**given).load(self.uri)


def _named(catalog: Catalog, nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> dict[str, Any]:
    """All frames by type, nodes before edges; refuses an edge type among nodes and vice versa."""
    for names, is_edges in ((nodes, False), (edges, True)):
        for name in names:
            if isinstance(find_type(catalog, name), EdgeType) is not is_edges:
                wrong, right = ("nodes", "edges") if not is_edges else ("edges", "nodes")
                raise InputError(f"'{name}' is among the {wrong}, and belongs to the {right}")
    return {**nodes, **edges}
