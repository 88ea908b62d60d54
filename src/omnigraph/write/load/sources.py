"""Where the data of a load comes from, and in which form: files, streams, tables, records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeAlias

from omnigraph.errors import InputError
from omnigraph.write.convert import show
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.files import STREAM, SourceFile, SourceOptions, source_files
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.records import take_records
from omnigraph.write.load.rejects_file import file_number
from omnigraph.write.load.streams import as_bytes, opened
from omnigraph.write.load.tables import read_frame, read_parquet

LoadData: TypeAlias = Any
"""A path, several paths, an open binary file, tables or frames by type name, or records."""


def read_data(data: LoadData, intake: Intake, options: SourceOptions) -> None:
    """Take everything in, whatever it is."""
    for name in options.types.values():
        intake.find(name)
    try:
        _read(data, intake, options)
    except InputError:
        # What is wrong with a record before that comes first.
        intake.settle()
        raise
    intake.settle()
    options.check_used()


def _read(data: LoadData, intake: Intake, options: SourceOptions) -> None:
    if isinstance(data, Mapping):
        for name, value in data.items():
            _read_named(str(name), value, intake)
    elif isinstance(data, str | os.PathLike):
        _read_path(os.fspath(data), intake, options)
    elif hasattr(data, "read"):
        _read_stream(data, intake, options)
    elif isinstance(data, Iterable) and not isinstance(data, bytes | bytearray | memoryview):
        _read_many(data, intake, options)
    else:
        raise InputError(
            f"cannot load from {type(data).__name__}",
            hint="pass a path, an open binary file, or a dict of tables by type name",
        )


def _read_many(data: Iterable[Any], intake: Intake, options: SourceOptions) -> None:
    """Several sources, or plain records."""
    items = iter(data)
    for item in items:
        if isinstance(item, dict):
            take_records(chain([item], items), intake, "<records>")
            return
        _read(item, intake, options)


def _read_named(name: str, value: Any, intake: Intake) -> None:
    if not read_frame(value, intake.find(name), intake, f"<{name}>"):
        raise InputError(
            f"the rows of '{name}' are {type(value).__name__}",
            hint="pass an Arrow table or a frame of pandas or polars",
        )


def _read_path(path: Any, intake: Intake, options: SourceOptions) -> None:
    if not isinstance(path, str):
        raise InputError(f"the path {show(path)} is no text")
    for file in source_files(path, options, intake.catalog):
        read_file(file, intake)


def read_file(file: SourceFile, intake: Intake) -> None:
    """Take one file in."""
    with opened(file.path) as stream:
        if file.type_name is None:
            read_records(stream, intake, file.path)
        elif file.form == "csv":
            read_csv(stream, intake.find(file.type_name), intake, file.path)
        else:
            read_parquet(file.path, intake.find(file.type_name), intake)


def _read_stream(data: Any, intake: Intake, options: SourceOptions) -> None:
    name = getattr(data, "name", None)
    shown = name if isinstance(name, str) else "<stream>"
    number = file_number(data)
    if number is not None:
        options.refuse_written(number)
    form = options.form or "ndjson"
    if form == "parquet":
        raise InputError("Parquet cannot be read from a stream", hint="pass a path")
    with as_bytes(data, shown) as stream:
        if form == "ndjson":
            read_records(stream, intake, shown)
            return
        kind = options.said(STREAM)
        if kind is None:
            raise InputError(
                "a stream of CSV says nothing about its type",
                hint=f"pass types={{'{STREAM}': 'Person'}}, say",
            )
        read_csv(stream, intake.find(kind), intake, shown)
