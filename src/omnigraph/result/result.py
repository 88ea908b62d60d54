"""``Result``: the rows of a query as an Arrow stream. Other modules of the package convert them."""

from __future__ import annotations

import io
import json
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.argument_checks import Location, public
from omnigraph.errors import Cancelled, Closed, InputError, InternalError
from omnigraph.lang.values.arrow import arrow_field
from omnigraph.lang.values.columns import JsonForm, json_values, python_values
from omnigraph.result.columns import EntityRef, Link, ResultColumn
from omnigraph.result.files import FunctionSink

__all__ = ["EntityRef", "JsonForm", "Link", "Result", "ResultColumn"]

_SHOWN_AS_TEXT = 10


class Result:
    """The rows of a query, computed batch by batch on demand, and cached.

    It implements the Arrow stream interface, so other libraries can read it directly. It can be
    read several times, by one reader at a time.

    >>> from omnigraph.lang.types import PropType, Scalar
    >>> column = ResultColumn("p.name", PropType(Scalar.STRING))
    >>> table = pa.table({"p.name": ["Ada", "Grace"]})
    >>> result = Result([column], table, query_name="people", target={"branch": "main"})
    >>> result.row_count, result.rows()
    (2, [{'p.name': 'Ada'}, {'p.name': 'Grace'}])
    """

    def __init__(
        self,
        columns: Sequence[ResultColumn],
        batches: Iterable[pa.RecordBatch] | pa.Table,
        *,
        query_name: str,
        target: Mapping[str, str],
        links: Sequence[Link] = (),
        close: Callable[[], None] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._links = tuple(links)
        self.query_name = query_name
        self.target = dict(target)
        """The branch or snapshot that was read."""
        self._stream = BatchStream(self._columns, batches, close, schema)

    # -- shape ---------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order; a name may occur twice."""
        return [column.name for column in self._columns]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow types of the columns. A DateTime is a ``date64`` of exact milliseconds."""
        return self._stream.schema

    @property
    def row_count(self) -> int:
        """The number of rows; computes all of them."""
        return sum(batch.num_rows for batch in self._stream)

    def __len__(self) -> int:
        return self.row_count

    def __bool__(self) -> bool:
        """Whether there are rows; computes at most one batch."""
        return any(True for _ in self._stream)

    # -- Python --------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, each computed on demand.

        >>> [batch.num_rows for batch in result.batches()]
        [2]
        """
        return iter(self._stream)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts, batch after batch."""
        names = self._keys()
        for batch in self._stream:
            for row in zip(*self._values(batch), strict=True):
                yield dict(zip(names, row, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python values: exact integers, dates, date-times in UTC.

        Raises:
            InputError: two columns have the same name.

        >>> result.rows()
        [{'p.name': 'Ada', 'p.age': 36}, {'p.name': 'Grace', 'p.age': 37}]
        """
        names = self._keys()
        return [
            dict(zip(names, row, strict=True))
            for batch in self._stream
            for row in zip(*self._values(batch), strict=True)
        ]

    def to_pylist(self) -> list[dict[str, Any]]:
        """The same as ``rows``, under Arrow's name.

        Raises:
            InputError: two columns have the same name.

        >>> result.to_pylist() == result.rows()
        True
        """
        return self.rows()

    # -- Arrow ---------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table.

        >>> result.to_arrow().column_names
        ['p.name', 'p.age']
        """
        return pa.Table.from_batches(list(self._stream), self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which computes them batch by batch.

        >>> result.to_reader().read_next_batch().num_rows
        2
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_ipc(self) -> bytes:
        """All rows as the bytes of an Arrow IPC stream.

        >>> import pyarrow as pa
        >>> pa.ipc.open_stream(result.to_ipc()).read_all().num_rows
        2
        """
        sink = io.BytesIO()
        self._write(sink)
        return sink.getvalue()

    @public
    def write_ipc(self, path: Location) -> int:
        """Write an Arrow IPC stream to a file, batch by batch; returns the number of rows.

        >>> result.write_ipc(folder / "people.arrows")
        2
        """
        from omnigraph.write.destinations import replaced_file

        with replaced_file(Path(path)) as write:
            return self._write(FunctionSink(write))

    def _write(self, sink: Any) -> int:
        count = 0
        with pa.ipc.new_stream(sink, self.schema) as writer:
            for batch in self._stream:
                writer.write_batch(batch)
                count += batch.num_rows
        return count

    # -- other libraries -----------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A pandas frame; columns that may be null have pandas' nullable types.

        Raises:
            PackageMissing: pandas is not installed.

        >>> int(result.to_pandas()["p.age"].sum())
        73
        """
        from omnigraph.result.frames import to_pandas

        return to_pandas(self._columns, self.to_arrow())

    def to_polars(self) -> Any:
        """A polars frame.

        Raises:
            InputError: two columns have the same name.
            PackageMissing: polars is not installed.

        >>> result.to_polars()["p.age"].sum()
        73
        """
        from omnigraph.result.frames import to_polars

        self._keys()
        return to_polars(self._columns, self.to_arrow())

    def to_networkx(self) -> Any:
        """A networkx multigraph of the returned nodes and the edges between them.

        A node is ``(type, id)``, with its returned properties as attributes. There is an edge
        for every pair of returned variables that the query joins.

        Raises:
            InputError: no node was returned.
            PackageMissing: networkx is not installed.

        >>> pairs = graph.query("query q() { match { $a: Person $a knows $b } return { $a, $b } }")
        >>> list(pairs.to_networkx().edges)
        [(('Person', 'Ada'), ('Person', 'Grace'), 'Knows')]
        """
        from omnigraph.result.frames import to_networkx

        rows = (row for batch in self._stream for row in zip(*self._values(batch), strict=True))
        return to_networkx(self._columns, self._links, rows)

    # -- JSON ----------------------------------------------------------------------------

    @public
    def json_rows(self, form: JsonForm = "native") -> list[dict[str, Any]]:
        """The rows as dicts of JSON values.

        ``native`` writes every integer as a number; ``sdk`` writes 64-bit integers as strings if
        JavaScript would round them.

        Raises:
            InputError: ``form`` is invalid, or two columns have the same name.

        >>> result.json_rows()[0]
        {'p.name': 'Ada', 'p.age': 36}
        """
        return [row for rows in self.json_batches(form) for row in rows]

    @public
    def json_batches(self, form: JsonForm = "native") -> Iterator[list[dict[str, Any]]]:
        """The rows of ``json_rows``, batch by batch; each batch is computed on demand.

        Raises:
            InputError: ``form`` is invalid, or two columns have the same name.

        >>> [len(rows) for rows in result.json_batches()]
        [2]
        """
        names = self._keys()

        def batches() -> Iterator[list[dict[str, Any]]]:
            for batch in self._stream:
                columns = (
                    json_values(array, column.type, column.name, form)
                    for array, column in zip(batch.columns, self._columns, strict=True)
                )
                yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

        return batches()

    @public
    def to_json(self, form: JsonForm = "native") -> str:
        """The rows as the text of a JSON array.

        Raises:
            InputError: ``form`` is invalid, or two columns have the same name.

        >>> result.to_json()
        '[{"p.name": "Ada", "p.age": 36}, {"p.name": "Grace", "p.age": 37}]'
        """
        return json.dumps(self.json_rows(form), ensure_ascii=False, allow_nan=False)

    @public
    def envelope(self, form: JsonForm = "native") -> dict[str, Any]:
        """The rows with query name and target, as the command line and the server return them.

        Raises:
            InputError: ``form`` is invalid, or two columns have the same name.

        >>> result.envelope()["columns"]
        ['p.name', 'p.age']
        """
        rows = self.json_rows(form)
        return {
            "query_name": self.query_name,
            "target": dict(self.target),
            "row_count": len(rows),
            "columns": self.columns,
            "rows": rows,
        }

    # -- display -------------------------------------------------------------------------

    def __repr__(self) -> str:
        from omnigraph.result.notebook import text_table

        rows, more = self._first(_SHOWN_AS_TEXT)
        if not more:
            count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
        elif self._stream.complete:
            count = f"{self.row_count:,} rows"
        else:
            count = f"more than {len(rows)} rows"
        head = f"<Result {self.query_name}: {count}>"
        return "\n".join([head, *text_table(self._columns, rows), *(["…"] if more else [])])

    def _repr_html_(self) -> str:
        from omnigraph.result.notebook import ROWS_IN_DRAWING, html_page

        rows, more = self._first(ROWS_IN_DRAWING)
        is_complete = not more or self._stream.complete
        return html_page(self._columns, self._links, rows, self.row_count if is_complete else None)

    # -- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel the computation of further rows. A result that was read completely stays readable.

        >>> result.close()
        """
        self._stream.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------

    def _keys(self) -> list[str]:
        """The names of the columns; raises if one occurs twice, since rows are dicts."""
        names = [column.name for column in self._columns]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise InputError(
                    f"two columns are called `{name}`; rows as objects need distinct names",
                    hint=f"name one of them with `as`, or read columns by position with "
                    f"to_arrow(): {', '.join(names)}",
                    details={"column": name},
                )
        return names

    def _values(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [
            python_values(array, column.type, column.name)
            for array, column in zip(batch.columns, self._columns, strict=True)
        ]

    def _first(self, count: int) -> tuple[list[tuple[Any, ...]], bool]:
        """The first rows by position, and whether there are more; computes only what is needed."""
        rows: list[tuple[Any, ...]] = []
        for batch in self._stream:
            wanted = batch.slice(0, count + 1 - len(rows))
            rows += zip(*self._values(wanted), strict=True)
            if len(rows) > count:
                return rows[:count], True
        return rows, False


class BatchStream:
    """Record batches of one schema, from an iterable that is read at most once.

    A failure is raised again by every later read: the rows before it never look like the whole
    result. ``close`` is called exactly once: at the end, after a failure, or when the stream is
    garbage-collected.
    """

    def __init__(
        self,
        columns: Sequence[ResultColumn],
        batches: Iterable[pa.RecordBatch] | pa.Table,
        close: Callable[[], None] | None,
        schema: pa.Schema | None = None,
    ) -> None:
        self.schema = schema or pa.schema([arrow_field(c.name, c.type) for c in columns])
        """The schema of every batch; the types come from the query, not from the rows."""
        self._batches: list[pa.RecordBatch] = []
        self._source: Iterator[pa.RecordBatch] | None = None
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._release: weakref.finalize[..., BatchStream] | None = None
        if close is not None:
            self._release = weakref.finalize(self, close)
            self._release.atexit = False
        if isinstance(batches, pa.Table):
            self._batches += [self._conforming(b) for b in batches.to_batches() if b.num_rows]
            self._end(None)
        else:
            self._source = iter(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches from the first on; several iterators may exist, each yields all of them."""
        position = 0
        while (batch := self._batch(position)) is not None:
            yield batch
            position += 1

    def take(self) -> Iterator[pa.RecordBatch]:
        """All batches, each of which is forgotten; a later read raises ``Closed``."""
        with self._lock:
            batches, self._batches = self._batches, []
            source, self._source = self._source, None
            failure = self._failure
            self._failure = failure or Closed("the rows of this result were written and forgotten")
        yield from batches
        if failure is not None:
            raise failure
        try:
            for batch in source or ():
                if batch.num_rows:
                    yield self._conforming(batch)
        finally:
            if self._release is not None:
                self._release()

    @property
    def complete(self) -> bool:
        """Whether the last batch has been computed."""
        return self._source is None and self._failure is None

    def close(self) -> None:
        """Cancel the computation of further batches."""
        with self._lock:
            if self._source is not None:
                self._end(Closed("the result was closed before all of it was read"))

    def _batch(self, position: int) -> pa.RecordBatch | None:
        with self._lock:
            while position >= len(self._batches):
                if self._failure is not None:
                    raise self._failure
                if self._source is None:
                    return None
                self._pull(self._source)
            return self._batches[position]

    def _pull(self, source: Iterator[pa.RecordBatch]) -> None:
        try:
            batch = next(source, None)
            if batch is None:
                self._end(None)
            elif batch.num_rows:
                self._batches.append(self._conforming(batch))
        except BaseException as error:
            interrupted = not isinstance(error, Exception)
            self._end(Cancelled("reading the result was interrupted") if interrupted else error)
            raise

    def _end(self, failure: BaseException | None) -> None:
        self._source, self._failure = None, failure
        if self._release is not None:
            self._release()

    def _conforming(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the column names of the result; its types must be equal already."""
        schema = self.schema
        if batch.schema.equals(schema):
            return batch
        if batch.schema.types != schema.types:
            raise InternalError(
                f"a batch has the types ({', '.join(map(str, batch.schema.types))}) "
                f"instead of ({', '.join(map(str, schema.types))})"
            )
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
