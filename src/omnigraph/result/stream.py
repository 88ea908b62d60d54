"""The batches of a result: pulled once, when somebody asks, and kept."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from omnigraph.errors import Cancelled, Closed, InternalError
from omnigraph.lang.values.arrow import arrow_field
from omnigraph.result.columns import ResultColumn


class BatchStream:
    """Record batches of one schema, from an iterable that is read at most once.

    What failed once fails again: the rows before a failure never pass for the whole. ``close``
    is called exactly once, at the end, after a failure, or when nobody holds the stream.
    """

    def __init__(
        self,
        columns: Sequence[ResultColumn],
        batches: Iterable[pa.RecordBatch] | pa.Table,
        close: Callable[[], None] | None,
        schema: pa.Schema | None = None,
    ) -> None:
        self.schema = schema or pa.schema([arrow_field(c.name, c.type) for c in columns])
        """What every batch is brought to; the types come from the query, not from the rows."""
        self._kept: list[pa.RecordBatch] = []
        self._source: Iterator[pa.RecordBatch] | None = None
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._release: weakref.finalize[..., BatchStream] | None = None
        if close is not None:
            self._release = weakref.finalize(self, close)
            self._release.atexit = False
        if isinstance(batches, pa.Table):
            self._kept += [self._conforming(b) for b in batches.to_batches() if b.num_rows]
            self._end(None)
        else:
            self._source = iter(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches from the first on; several may iterate, each sees all of them."""
        position = 0
        while (batch := self._batch(position)) is not None:
            yield batch
            position += 1

    @property
    def complete(self) -> bool:
        """Whether the last batch has been pulled."""
        return self._source is None and self._failure is None

    def close(self) -> None:
        """Give the rest up."""
        with self._lock:
            if self._source is not None:
                self._end(Closed("the result was closed before all of it was read"))

    def _batch(self, position: int) -> pa.RecordBatch | None:
        with self._lock:
            while position >= len(self._kept):
                if self._failure is not None:
                    raise self._failure
                if self._source is None:
                    return None
                self._pull(self._source)
            return self._kept[position]

    def _pull(self, source: Iterator[pa.RecordBatch]) -> None:
        try:
            batch = next(source, None)
            if batch is None:
                self._end(None)
            elif batch.num_rows:
                self._kept.append(self._conforming(batch))
        except BaseException as error:
            interrupted = not isinstance(error, Exception)
            self._end(Cancelled("reading the result was interrupted") if interrupted else error)
            raise

    def _end(self, failure: BaseException | None) -> None:
        self._source, self._failure = None, failure
        if self._release is not None:
            self._release()

    def _conforming(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch under the names of the result; its types must be right already."""
        schema = self.schema
        if batch.schema.equals(schema):
            return batch
        if batch.schema.types != schema.types:
            raise InternalError(
                f"a batch holds ({', '.join(map(str, batch.schema.types))}) "
                f"where ({', '.join(map(str, schema.types))}) was promised"
            )
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
