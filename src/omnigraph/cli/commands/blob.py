"""``omnigraph blob``: the bytes of one Blob value, and their size and location."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.options import add_snapshot, snapshot_arguments, whole_number
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import field_lines, show_report, yes_no
from omnigraph.cli.targets import open_graph, take_snapshot
from omnigraph.errors import InputError, NotFound

if TYPE_CHECKING:
    from omnigraph.api.snapshot import GraphSnapshot
    from omnigraph.api.snapshot_rows import BlobInfo

CHUNK_BYTES = 4 << 20


def add_blob_get(parser: argparse.ArgumentParser) -> None:
    _add_cell(parser)
    parser.add_argument(
        "--offset", type=whole_number(0), default=0, metavar="N", help="skip this many bytes"
    )
    parser.add_argument(
        "--length", type=whole_number(0), metavar="N", help="write at most this many bytes"
    )
    parser.add_argument("--out", metavar="PATH", help="file to write")


def add_blob_stat(parser: argparse.ArgumentParser) -> None:
    _add_cell(parser)


def _add_cell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entity", choices=("node", "edge"), metavar="ENTITY", help="node or edge")
    parser.add_argument("type", metavar="TYPE", help="its type")
    parser.add_argument("id", metavar="ID", help="its id")
    parser.add_argument("property", metavar="PROPERTY", help="its Blob property")
    add_snapshot(parser)


def run_blob_get(arguments: argparse.Namespace) -> int:
    """Streams the bytes of one Blob to a file or a pipe; never to a terminal."""
    if arguments.out is None and terminal.is_terminal(sys.stdout):
        raise InputError(
            "refusing to write binary data to a terminal",
            hint="name a file with --out, or use a pipe",
        )
    with open_graph(arguments, "r") as (graph, _):
        snapshot = take_snapshot(graph, **snapshot_arguments(arguments))
        size = _info(snapshot, arguments).size
        end = size if arguments.length is None else min(size, arguments.offset + arguments.length)
        chunks = (
            snapshot.read_blob(*_cell(arguments), start, min(CHUNK_BYTES, end - start)) or b""
            for start in range(arguments.offset, end, CHUNK_BYTES)
        )
        if arguments.out is None:
            for chunk in chunks:
                terminal.show_bytes(chunk)
        else:
            from omnigraph.write.destinations import replaced_file

            with replaced_file(Path(arguments.out), compress=False) as write:
                written = sum(map(write, chunks))
            terminal.note(f"wrote {written} bytes to {arguments.out}")
    return terminal.OK


def run_blob_stat(arguments: argparse.Namespace) -> int:
    """Shows the size of a Blob and where it is stored, without reading it."""
    with open_graph(arguments, "r") as (graph, _):
        info = _info(take_snapshot(graph, **snapshot_arguments(arguments)), arguments)
    is_managed = info.uri is None
    document = {
        "entity": arguments.entity,
        "type": arguments.type,
        "id": arguments.id,
        "property": arguments.property,
        "size": info.size,
        "managed": is_managed,
        "uri": info.uri,
    }
    fields = {"size": info.size, "managed": yes_no(is_managed), "uri": info.uri}
    return show_report(arguments, document, field_lines(fields))


def _cell(arguments: argparse.Namespace) -> tuple[str, str, str]:
    return f"{arguments.entity}:{arguments.type}", arguments.id, arguments.property


def _info(snapshot: GraphSnapshot, arguments: argparse.Namespace) -> BlobInfo:
    info = snapshot.blob_info(*_cell(arguments))
    if info is None:
        raise NotFound(f"{arguments.type}.{arguments.property} of '{arguments.id}' is null")
    return info
