"""The data source ``omnigraph`` of Spark: types as frames, changes as a stream, and writing both.

The classes that Spark wants are made when it is registered, since only then PySpark is needed.
They hold no rule: reading is ``source_reader``, writing ``source_writer``. Filters are an option
and not taken from Spark, which in 4.3.0 mixes up those of several scans of one frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.commit.history import SnapshotRef
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.closest import closest
from omnigraph.merge.feed import BEGINNING
from omnigraph.spark.session.opening import opened
from omnigraph.spark.source.feed import COLUMNS, FeedPlan
from omnigraph.spark.source.reader import TypeScan, plan_scan
from omnigraph.spark.source.writer import COMMIT_ROWS, TypeWrite, plan_write
from omnigraph.write.load.job import LoadDestination, LoadJob, load_mode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, WriterCommitMessage
    from pyspark.sql.types import StructType

    from omnigraph.spark.session.tasks import TaskAnswer

FORMAT = "omnigraph"
READ_OPTIONS = ("type", "branch", "snapshot", "tag", "version", "columns", "filter", "partitions")
FEED_OPTIONS = ("branch", "start", "kinds", "types", "ops", "max_commits")
STREAM_OPTIONS = (
    "type",
    "mode",
    "branch",
    "from_branch",
    "max_rejects",
    "strict_properties",
    "actor",
    "max_rows",
)
WRITE_OPTIONS = (*STREAM_OPTIONS, "rejects", "if_commit", "idempotency_key")
_QUERY = "sql.streaming.queryId"


def register(spark: SparkSession, *, storage_options: Mapping[str, str] | None = None) -> None:
    """Make ``format("omnigraph")`` known to a session.

    ``storage_options`` say how storage is reached, beside the environment; they travel inside the
    registered class, so that no plan and no log shows them.
    """
    spark.dataSource.register(source_class(storage_options))


def source_class(storage: Mapping[str, str] | None = None) -> type[DataSource]:
    """The class that Spark is given."""
    from pyspark.sql import datasource

    class Message(datasource.WriterCommitMessage):
        """What a task says about its partition."""

        def __init__(self, answer: TaskAnswer, query: str | None = None) -> None:
            self.answer = answer
            self.query = query

    class SourceReader(datasource.DataSourceReader):
        def __init__(self, scan: TypeScan) -> None:
            self.scan = scan

        def partitions(self) -> list[datasource.InputPartition]:
            return [datasource.InputPartition(group) for group in self.scan.groups]

        def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
            # A table without rows has one partition that says nothing.
            return self.scan.read(partition.value) if partition.value else iter(())

    class FeedReader(datasource.DataSourceStreamReader):
        def __init__(self, plan: FeedPlan) -> None:
            self.plan = plan

        def initialOffset(self) -> dict[str, str]:  # noqa: N802
            with _hinting():
                return self.plan.first()

        def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:  # noqa: N802
            with _hinting():
                return self.plan.latest(start)

        def partitions(
            self, start: dict[str, str], end: dict[str, str]
        ) -> list[datasource.InputPartition]:
            with _hinting():
                return [datasource.InputPartition(end) for end in self.plan.commits(start, end)]

        def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
            return self.plan.read(partition.value)

    class SourceWriter(datasource.DataSourceArrowWriter):
        def __init__(self, plan: TypeWrite) -> None:
            self.plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return Message(self.plan.write(iterator))

        def commit(self, messages: list[Any]) -> None:
            with _hinting():
                self.plan.commit([message.answer for message in messages if message is not None])

        def abort(self, messages: list[Any]) -> None:
            self.plan.abort()

    class StreamWriter(datasource.DataSourceStreamArrowWriter):
        def __init__(self, plan: TypeWrite) -> None:
            self.plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return Message(self.plan.write(iterator), _query())

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            said = [message for message in messages if message is not None]
            if said:
                key = batch_key(said[0].query, batchId)
                with _hinting():
                    self.plan.commit([message.answer for message in said], key)

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            self.plan.abort()

    class OmniGraphSource(datasource.DataSource):
        _scan: TypeScan | None = None

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            # Spark keeps this object for the frame: what is found here stays what it is.
            if "type" not in self.options:
                return COLUMNS  # type: ignore[return-value]
            with _hinting():
                self._scan, struct = _plan_scan(self.options, storage)
            return struct

        def reader(self, schema: StructType) -> datasource.DataSourceReader:
            _needed(self.options, "type")
            if self._scan is None:
                raise InputError(
                    "the columns of a graph are known", hint="give no schema; choose by columns"
                )
            return SourceReader(self._scan)

        def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
            with _hinting():
                return SourceWriter(_plan_write(self.options, overwrite, storage))

        def streamReader(  # noqa: N802
            self, schema: StructType
        ) -> datasource.DataSourceStreamReader:
            with _hinting():
                return FeedReader(_plan_feed(self.options, storage))

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> datasource.DataSourceStreamWriter:
            with _hinting():
                return StreamWriter(_plan_write(self.options, overwrite, storage, is_stream=True))

    return OmniGraphSource


def batch_key(query: str | None, batch: int) -> str:
    """What a micro-batch is known by, however often it is written."""
    if query is None:
        raise InputError("the query that this batch belongs to is not known")
    return f"stream:{query}:{batch}"


@contextmanager
def _hinting() -> Iterator[None]:
    """Spark shows the text of an error; what to do about it is made part of that."""
    try:
        yield
    except OmniGraphError as error:
        if error.hint is not None:
            error.add_note(f"hint: {error.hint}")
        raise


def _query() -> str | None:
    """The stream that this task works for; the same after a restart from its checkpoint."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY)


# -- options --------------------------------------------------------------------------------------


def _plan_scan(
    options: MutableMapping[str, str], storage: Mapping[str, str] | None
) -> tuple[TypeScan, StructType]:
    _check(options, READ_OPTIONS)
    columns = options.get("columns")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    ref = SnapshotRef(
        options.get("branch", "main"),
        options.get("snapshot"),
        options.get("tag"),
        _number(options, "version"),
    )
    return plan_scan(
        opened(_needed(options, "path"), storage),
        _needed(options, "type"),
        ref,
        names,
        options.get("filter"),
        _number(options, "partitions", least=1),
    )


def _plan_feed(options: MutableMapping[str, str], storage: Mapping[str, str] | None) -> FeedPlan:
    if "type" in options:
        raise InputError(
            "a stream of a graph is its change feed, not the rows of a type",
            hint="choose by the option types; read a type with spark.read",
        )
    _check(options, FEED_OPTIONS, is_stream=True)

    def several(name: str) -> tuple[str, ...] | None:
        value = options.get(name)
        return None if value is None else tuple(item.strip() for item in value.split(","))

    return FeedPlan(
        _needed(options, "path"),
        options.get("branch", "main"),
        options.get("start", BEGINNING),
        several("kinds"),
        several("types"),
        several("ops"),
        _number(options, "max_commits"),
        storage,
    )


def _plan_write(
    options: MutableMapping[str, str],
    overwrite: bool,
    storage: Mapping[str, str] | None,
    *,
    is_stream: bool = False,
) -> TypeWrite:
    _check(options, STREAM_OPTIONS if is_stream else WRITE_OPTIONS, is_stream=is_stream)
    allowed = _number(options, "max_rejects", least=0)
    rejects = options.get("rejects")
    if allowed is None:
        allowed = 0 if rejects is None else 2**63
    uri, type_name = _needed(options, "path"), _needed(options, "type")
    return plan_write(
        uri,
        type_name,
        LoadJob(
            {type_name: None},
            load_mode(options.get("mode", "overwrite" if overwrite else "append")),
            rejects=rejects,
            max_rejects=allowed,
            strict_properties=_switch(options, "strict_properties"),
        ),
        LoadDestination(
            options.get("branch", "main"),
            options.get("from_branch"),
            options.get("actor"),
            options.get("if_commit"),
            options.get("idempotency_key"),
        ),
        max_rows=_number(options, "max_rows", least=0) or COMMIT_ROWS,
        is_marked=not is_stream,
        storage=storage,
    )


def _check(
    options: MutableMapping[str, str], allowed: tuple[str, ...], *, is_stream: bool = False
) -> None:
    """Reject unknown options; a stream also has options of Spark."""
    for name in options:
        if name.lower() in allowed or name.lower() == "path":
            continue
        meant = closest(name.lower(), list(allowed))
        if meant is not None or not is_stream:
            raise InputError(
                f"there is no option '{name}'",
                hint=f"did you mean '{meant}'?" if meant else f"there are {', '.join(allowed)}",
            )


def _needed(options: MutableMapping[str, str], name: str) -> str:
    value = options.get(name)
    if not value:
        hint = "pass the address of the graph" if name == "path" else f'option("{name}", …)'
        raise InputError(f"the {name} is missing", hint=hint)
    return value


def _number(options: MutableMapping[str, str], name: str, least: int = 1) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < least:
        raise InputError(f"the option {name} is a whole number from {least} on, not '{value}'")
    return int(value)


def _switch(options: MutableMapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InputError(f"the option {name} is true or false, not '{value}'")
    return value == "true"
