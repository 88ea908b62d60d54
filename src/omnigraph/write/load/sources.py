"""Reads the data of a load: files, streams, tables, records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from omnigraph.errors import InputError
from omnigraph.lang.values.spelling import show
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.files import STREAM, LoadFile, Sources
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.job import LoadData
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.records import take_records
from omnigraph.write.load.rejects_file import file_number
from omnigraph.write.load.streams import as_bytes, opened
from omnigraph.write.load.tables import read_frame, read_parquet


def read_data(data: LoadData, intake: Intake, sources: Sources) -> None:
    """Read all data, of any supported kind."""
    for name in sources.types.values():
        intake.find(name)
    try:
        _read(data, intake, sources)
    except InputError:
        # Invalid records before the failure are reported first.
        intake.flush()
        raise
    intake.flush()
    sources.check_used()


def _read(data: LoadData, intake: Intake, sources: Sources) -> None:
    if isinstance(data, Mapping):
        for name, value in data.items():
            _read_named(str(name), value, intake)
    elif isinstance(data, str | os.PathLike):
        _read_path(os.fspath(data), intake, sources)
    elif hasattr(data, "read"):
        _read_stream(data, intake, sources)
    elif isinstance(data, Iterable) and not isinstance(data, bytes | bytearray | memoryview):
        _read_many(data, intake, sources)
    else:
        raise InputError(
            f"cannot load from {type(data).__name__}",
            hint="pass a path, an open binary file, or a dict of tables by type name",
        )


def _read_many(data: Iterable[Any], intake: Intake, sources: Sources) -> None:
    """Several sources, or plain records."""
    items = iter(data)
    for item in items:
        if isinstance(item, dict):
            take_records(chain([item], items), intake, "<records>")
            return
        _read(item, intake, sources)


def _read_named(name: str, value: Any, intake: Intake) -> None:
    if not read_frame(value, intake.find(name), intake, f"<{name}>"):
        raise InputError(
            f"the rows of '{name}' are {type(value).__name__}",
            hint="pass an Arrow table or a frame of pandas or polars",
        )


def _read_path(path: Any, intake: Intake, sources: Sources) -> None:
    if not isinstance(path, str):
        raise InputError(f"the path {show(path)} is not a string")
    for file in sources.files(path):
        read_file(file, intake)


def read_file(file: LoadFile, intake: Intake) -> None:
    """Take one file in."""
    with opened(file.path) as stream:
        if file.type_name is None:
            read_records(stream, intake, file.path)
        elif file.format == "csv":
            read_csv(stream, intake.find(file.type_name), intake, file.path)
        else:
            read_parquet(file.path, intake.find(file.type_name), intake)


def _read_stream(data: Any, intake: Intake, sources: Sources) -> None:
    name = getattr(data, "name", None)
    shown = name if isinstance(name, str) else "<stream>"
    number = file_number(data)
    if number is not None:
        sources.reject_rejects_file(number)
    format = sources.format or "ndjson"
    if format == "parquet":
        raise InputError("Parquet cannot be read from a stream", hint="pass a path")
    with as_bytes(data, shown) as stream:
        if format == "ndjson":
            read_records(stream, intake, shown)
            return
        kind = sources.declared_type(STREAM)
        if kind is None:
            raise InputError(
                "a stream of CSV says nothing about its type",
                hint=f"pass types={{'{STREAM}': 'Person'}}, say",
            )
        read_csv(stream, intake.find(kind), intake, shown)
