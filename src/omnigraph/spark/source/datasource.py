"""The data source ``omnigraph`` of Spark: types as frames, changes as a stream, and writing both.

The classes for Spark are defined on first use, since only then PySpark is needed. They are
adapters: ``options`` parses options, ``reader`` and ``feed`` read, ``writer`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.spark.source.feed import COLUMNS, FeedPlan
from omnigraph.spark.source.options import (
    feed_from_options,
    require_option,
    scan_from_options,
    write_from_options,
)
from omnigraph.spark.source.reader import TypeScan
from omnigraph.spark.source.writer import TypeWrite

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession, datasource
    from pyspark.sql.types import StructType

    from omnigraph.spark.session.tasks import TaskAnswer

FORMAT = "omnigraph"
_QUERY = "sql.streaming.queryId"


def register(spark: SparkSession, *, storage_options: Mapping[str, str] | None = None) -> None:
    """Register ``format("omnigraph")`` with a session.

    ``storage_options`` are added to those of the environment; they are sent inside the registered
    class, so that no plan and no log shows them.
    """
    spark.dataSource.register(source_class(storage_options))


def source_class(storage: Mapping[str, str] | None = None) -> type[datasource.DataSource]:
    """The data source class for Spark; it contains the storage options."""
    from pyspark.sql import datasource

    class OmniGraphSource(datasource.DataSource):
        _scan: TypeScan | None = None

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            # Spark keeps this object for the frame, which pins the resolved state.
            if "type" not in self.options:
                return COLUMNS  # type: ignore[return-value]
            with _hinting():
                self._scan, struct = scan_from_options(self.options, storage)
            return struct

        def reader(self, schema: StructType) -> datasource.DataSourceReader:
            require_option(self.options, "type")
            if self._scan is None:
                raise InputError(
                    "a schema cannot be set: the columns are those of the type",
                    hint="use the option columns to select some",
                )
            return _reader(self._scan)

        def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
            with _hinting():
                return _writer(write_from_options(self.options, overwrite, storage))

        def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
            with _hinting():
                return _stream_reader(feed_from_options(self.options, storage))

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> datasource.DataSourceStreamWriter:
            with _hinting():
                plan = write_from_options(self.options, overwrite, storage, is_stream=True)
            return _stream_writer(plan)

    return OmniGraphSource


# -- reading --------------------------------------------------------------------------------------


def _reader(scan: TypeScan) -> datasource.DataSourceReader:
    from pyspark.sql import datasource

    class SourceReader(datasource.DataSourceReader):
        def __init__(self, scan: TypeScan) -> None:
            self.scan = scan

        def partitions(self) -> list[datasource.InputPartition]:
            return [datasource.InputPartition(group) for group in self.scan.groups]

        def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
            # A table without rows has one empty partition.
            return self.scan.read(partition.value) if partition.value else iter(())

    return SourceReader(scan)


def _stream_reader(plan: FeedPlan) -> datasource.DataSourceStreamReader:
    from pyspark.sql import datasource

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

    return FeedReader(plan)


# -- writing --------------------------------------------------------------------------------------


def _writer(plan: TypeWrite) -> datasource.DataSourceArrowWriter:
    from pyspark.sql import datasource

    class SourceWriter(datasource.DataSourceArrowWriter):
        def __init__(self, plan: TypeWrite) -> None:
            self.plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
            return _message(self.plan.write(iterator))

        def commit(self, messages: list[Any]) -> None:
            with _hinting():
                self.plan.commit([message.answer for message in messages if message is not None])

        def abort(self, messages: list[Any]) -> None:
            self.plan.abort()

    return SourceWriter(plan)


def _stream_writer(plan: TypeWrite) -> datasource.DataSourceStreamArrowWriter:
    from pyspark.sql import datasource

    class StreamWriter(datasource.DataSourceStreamArrowWriter):
        def __init__(self, plan: TypeWrite) -> None:
            self.plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
            return _message(self.plan.write(iterator), _query())

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            said = [message for message in messages if message is not None]
            if said:
                key = batch_key(said[0].query, batchId)
                with _hinting():
                    self.plan.commit([message.answer for message in said], key)

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            self.plan.abort()

    return StreamWriter(plan)


def _message(answer: TaskAnswer, query: str | None = None) -> datasource.WriterCommitMessage:
    """The result of a task for its partition."""
    from pyspark.sql import datasource

    class Message(datasource.WriterCommitMessage):
        def __init__(self, answer: TaskAnswer, query: str | None) -> None:
            self.answer = answer
            self.query = query

    return Message(answer, query)


def batch_key(query: str | None, batch: int) -> str:
    """The idempotency key of a micro-batch."""
    if query is None:
        raise InputError("the query of this batch is unknown")
    return f"stream:{query}:{batch}"


@contextmanager
def _hinting() -> Iterator[None]:
    """Append the hint to the text of an error, since Spark shows only the text."""
    try:
        yield
    except OmniGraphError as error:
        if error.hint is not None:
            error.add_note(f"hint: {error.hint}")
        raise


def _query() -> str | None:
    """The id of the stream of this task; the same after a restart from its checkpoint."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY)
