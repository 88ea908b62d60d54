"""The data of a load as lines of JSON: files of this machine, streams, tables and records.

Lines of JSON are sent as they are, piece by piece. CSV, Parquet and tables are converted first, to
a temporary file if they are large.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.progress import OnProgress, Progress
from omnigraph.remote.requests import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.lang.schema.catalog import Catalog, EntityType
    from omnigraph.write.load.intake import Intake
    from omnigraph.write.load.sources import LoadFile, Sources

_STREAM = "<stream>"
"""The name of a body in the messages of a server."""
_PIECE = 1 << 16
_IN_MEMORY = 8 << 20
_CONVERTED = frozenset({".csv", ".parquet", ".pq"})
_COMPRESSED = frozenset({".gz", ".zst"})


class LoadBody:
    """The lines of a load, as pieces of bytes of any length."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        format: str | None = None,
        types: Mapping[Any, str] | None = None,
    ) -> None:
        self._catalog = catalog
        self._format = format
        self._types = dict(types or {})
        self._sources: Sources | None = None

    def pieces(self, data: Any) -> Iterator[bytes]:
        """All pieces; every source ends with a line end."""
        if isinstance(data, Mapping):
            yield from self._spooled(lambda write: self._write_tables(data, write))
        elif isinstance(data, str | os.PathLike):
            yield from self._path(os.fspath(data))
        elif hasattr(data, "read"):
            yield from self._stream(data)
        elif isinstance(data, Iterable) and not isinstance(data, bytes | bytearray | memoryview):
            items = iter(data)
            for item in items:
                if isinstance(item, dict):
                    yield from _record_lines(chain([item], items))
                    return
                yield from self.pieces(item)
        else:
            raise InputError(
                f"cannot load from {type(data).__name__}",
                hint="pass a path, an open binary file, or a dict of tables by type name",
            )

    def total(self, data: Any) -> int:
        """The size of the data in bytes, if it is one file that is sent as it is; 0 otherwise."""
        if not isinstance(data, str | os.PathLike) or not self._is_sent_as_it_is(os.fspath(data)):
            return 0
        return os.path.getsize(data)

    @contextmanager
    def naming(self, data: Any) -> Iterator[None]:
        """Errors of a server that name its stream name the source of this machine instead."""
        try:
            yield
        except OmniGraphError as error:
            name = _name_of(data)
            if name is not None and error.message.startswith(_STREAM):
                error.message = f"{name}{error.message.removeprefix(_STREAM)}"
                error.args = (error.message,)
                if error.details.get("file") == _STREAM:
                    error.details["file"] = name
            raise

    # -- files and streams -------------------------------------------------------------------

    def _is_sent_as_it_is(self, path: str) -> bool:
        suffix = Path(path).suffix.lower()
        is_lines = self._format in (None, "ndjson") and not self._types
        is_plain = suffix not in _CONVERTED and suffix not in _COMPRESSED
        return is_lines and is_plain and os.path.isfile(path)

    def _path(self, path: str) -> Iterator[bytes]:
        if self._is_sent_as_it_is(path):
            try:
                with open(path, "rb") as stream:
                    yield from _with_line_end(iter(lambda: stream.read(_PIECE), b""))
            except OSError as error:
                reason = (error.strerror or "it cannot be read").lower()
                raise InputError(
                    f"cannot read '{path}': {reason}", details={"file": path}
                ) from None
            return
        if self._is_one_file_of_lines(path):
            yield from _opened_lines(path)
            return
        for file in self._resolver().files(path):
            yield from self._file(file)

    def _is_one_file_of_lines(self, path: str) -> bool:
        """Whether nothing but its name is needed to read a path, so that no schema is fetched."""
        from omnigraph.write.load.streams import uncompressed

        is_lines = self._format in (None, "ndjson") and not self._types
        is_one = not os.path.isdir(path) and (os.path.exists(path) or not glob.has_magic(path))
        return is_lines and is_one and Path(uncompressed(path)).suffix.lower() not in _CONVERTED

    def _file(self, file: LoadFile) -> Iterator[bytes]:
        if file.type_name is None:
            yield from _opened_lines(file.path)
            return
        name = file.type_name
        convert = self._write_csv if file.format == "csv" else self._write_parquet
        yield from self._spooled(lambda write: convert(file.path, name, write))

    def _stream(self, data: Any) -> Iterator[bytes]:
        from omnigraph.write.load.sources import STREAM
        from omnigraph.write.load.streams import as_bytes

        given = getattr(data, "name", None)
        name = given if isinstance(given, str) else "<stream>"
        stream = as_bytes(data.read, name)
        if self._format in (None, "ndjson"):
            yield from _with_line_end(iter(lambda: stream.read(_PIECE), b""))
            return
        if self._format == "parquet":
            raise InputError("Parquet cannot be read from a stream", hint="pass a path")
        type_name = self._resolver().declared_type(STREAM)
        if type_name is None:
            raise InputError(
                "the type of a CSV stream is unknown",
                hint=f"pass for example types={{'{STREAM}': 'Person'}}",
            )
        yield from self._spooled(
            lambda write: self._write_csv_stream(cast(Any, stream), type_name, name, write)
        )

    def _resolver(self) -> Sources:
        from omnigraph.write.load.sources import Sources

        if self._sources is None:
            self._sources = Sources(self._catalog(), self._format, self._types)
        return self._sources

    # -- conversion --------------------------------------------------------------------------

    def _spooled(self, convert: Callable[[Callable[[str], Any]], None]) -> Iterator[bytes]:
        """The lines that a conversion writes, once it has ended without an error."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
            file = cast("IO[bytes]", spool)
            convert(lambda line: file.write(f"{line}\n".encode("utf-8", "surrogatepass")))
            file.seek(0)
            yield from iter(lambda: file.read(_PIECE), b"")

    def _find(self, name: str) -> EntityType:
        from omnigraph.write.conform import find_type

        return find_type(self._catalog(), name)

    def _write_tables(self, tables: Mapping[Any, Any], write: Callable[[str], Any]) -> None:
        from omnigraph.write.load.tables import frame_batches

        for name, value in tables.items():
            entity_type = self._find(str(name))
            batches = frame_batches(value, entity_type, f"<{name}>")
            if batches is None:
                raise InputError(
                    f"the rows of '{name}' are {type(value).__name__}",
                    hint="pass an Arrow table or a frame of pandas or polars",
                )
            for batch in batches:
                _write_batch(batch, entity_type, write)

    def _write_parquet(self, path: str, name: str, write: Callable[[str], Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        entity_type = self._find(name)
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=4096):
                    _write_batch(batch, entity_type, write)
        except (pa.ArrowException, OSError):
            raise InputError(
                f"'{path}' cannot be read as Parquet", details={"file": path}
            ) from None

    def _write_csv(self, path: str, name: str, write: Callable[[str], Any]) -> None:
        from omnigraph.write.load.streams import opened

        with opened(path) as stream:
            self._write_csv_stream(stream, name, path, write)

    def _write_csv_stream(
        self, stream: Any, type_name: str, name: str, write: Callable[[str], Any]
    ) -> None:
        from omnigraph.write.load.csv_files import read_csv

        entity_type = self._find(type_name)
        read_csv(stream, entity_type, cast("Intake", _CsvIntake(entity_type, name, write)), name)


class _CsvIntake:
    """Takes the rows of the CSV reader, and writes each as a line."""

    def __init__(self, entity_type: EntityType, name: str, write: Callable[[str], Any]) -> None:
        self._entity_type = entity_type
        self._name = name
        self._write = write

    def open_file(self, name: str) -> int:
        return 0

    def count_bytes(self, count: int) -> None:
        """The bytes are counted when they are sent."""

    def gatherer(self, entity_type: EntityType) -> _CsvIntake:
        return self

    def add(self, data: dict[str, Any], ends: tuple[str, str] | None, file: int, line: int) -> None:
        self._write(_line(self._entity_type, data, ends))

    def check_length(self, file: int, line: int, size: int) -> None:
        from omnigraph.write.load import limits

        if size > limits.LONGEST_RECORD:
            self.end(file, line, f"the record is longer than {limits.LONGEST_RECORD} bytes")

    def reject(self, file: int, line: int, reason: str, **details: Any) -> None:
        from omnigraph.write.load.rejects import Reject

        raise Reject(self._name, line, reason, details.get("field")).error()

    def end(self, file: int, line: int, reason: str) -> None:
        self.reject(file, line, reason)


def _write_batch(
    batch: pa.RecordBatch, entity_type: EntityType, write: Callable[[str], Any]
) -> None:
    import pyarrow as pa

    from omnigraph.lang.schema.catalog import EdgeType
    from omnigraph.lang.types import Scalar

    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        prop = entity_type.properties.get(name)
        is_moment = prop is not None and prop.type.scalar is Scalar.DATETIME
        if is_moment and pa.types.is_date64(column.type):
            column = column.cast(pa.timestamp("ms"))
        columns.append([plain(value) for value in column.to_pylist()])
    for row in zip(*columns, strict=True):
        data = dict(zip(batch.schema.names, row, strict=True))
        ends = None
        if isinstance(entity_type, EdgeType):
            ends = _taken(data, "from", "src"), _taken(data, "to", "dst")
        write(_line(entity_type, data, ends))


def _taken(data: dict[str, Any], *names: str) -> Any:
    return next((data.pop(name) for name in names if name in data), None)


def _line(entity_type: EntityType, data: Mapping[str, Any], ends: tuple[Any, Any] | None) -> str:
    record: dict[str, Any] = {"type": entity_type.name, "data": data}
    if ends is not None:
        record = {"edge": entity_type.name, "from": ends[0], "to": ends[1], "data": data}
    return json.dumps(record, ensure_ascii=False)


def _name_of(data: Any) -> str | None:
    """How messages name the data; ``None`` if it has several sources, or lines of its own."""
    if isinstance(data, str | os.PathLike):
        is_one = os.path.isfile(data) and Path(data).suffix.lower() not in _CONVERTED
        return os.fspath(data) if is_one else None
    if hasattr(data, "read"):
        name = getattr(data, "name", None)
        return name if isinstance(name, str) else None
    is_records = isinstance(data, list) and bool(data) and isinstance(data[0], dict)
    return "<records>" if is_records else None


def _opened_lines(path: str) -> Iterator[bytes]:
    from omnigraph.write.load.streams import opened

    with opened(path) as stream:
        yield from _with_line_end(iter(lambda: stream.read(_PIECE), b""))


def _record_lines(records: Iterable[Any]) -> Iterator[bytes]:
    """Lines of records, many in a piece: a piece of its own would cost more than its line."""
    lines: list[str] = []
    size = 0
    for record in records:
        if not isinstance(record, dict):
            raise InputError(
                f"a record is {type(record).__name__}", hint="pass every record as a dict"
            )
        line = json.dumps(plain(record), ensure_ascii=False)
        lines.append(line)
        size += len(line)
        if size >= _PIECE:
            yield _joined(lines)
            lines, size = [], 0
    if lines:
        yield _joined(lines)


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _with_line_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, with a line end after the last line."""
    last = b"\n"
    for piece in pieces:
        yield piece
        last = piece[-1:]
    if last != b"\n":
        yield b"\n"


def started(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, of which the first exists already: data that cannot be read is not sent."""
    first = next(pieces, b"")
    return chain([first] if first else [], pieces)


def counted(pieces: Iterator[bytes], total: int, on_progress: OnProgress | None) -> Iterator[bytes]:
    """The same pieces; reports the bytes that were sent."""
    sent = 0
    for piece in pieces:
        yield piece
        sent += len(piece)
        if on_progress is not None:
            on_progress(Progress("sending", sent, max(total, sent) if total else 0, "bytes"))
    if on_progress is not None:
        on_progress(Progress("loading", 0, 0, "records"))
