"""``omnigraph blob``: the bytes of one Blob, and what is known of them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.registry import (
    Capability,
    Commands,
    UsageError,
    add_json,
    add_uri,
    command,
    family,
)
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError, NotFound

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.snapshot import BlobInfo, GraphSnapshot

PIECE = 4 << 20
"""How many bytes are in memory at once."""


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "blob", "read Blobs")
    parser = _form(
        forms,
        "get",
        run_get,
        "write the bytes of a Blob out",
        "Writes the bytes of one Blob to a file or a pipe, piece by piece; never to a terminal.",
    )
    parser.add_argument(
        "--offset", type=int, default=0, metavar="N", help="begin behind so many bytes"
    )
    parser.add_argument("--length", type=int, metavar="N", help="at most so many bytes")
    parser.add_argument("--out", metavar="PATH", help="the file to write")
    parser = _form(
        forms,
        "stat",
        run_stat,
        "tell the size and the place of a Blob",
        "Tells how large a Blob is and where it lies, without reading it.",
    )
    add_json(parser)


def _form(
    forms: Commands, name: str, run: Any, text: str, description: str
) -> argparse.ArgumentParser:
    parser = command(forms, name, run, Capability.ANY, text, description=description, label="blob")
    parser.add_argument("entity", choices=("node", "edge"), metavar="ENTITY", help="node or edge")
    parser.add_argument("type", metavar="TYPE", help="its type")
    parser.add_argument("id", metavar="ID", help="its id")
    parser.add_argument("property", metavar="PROPERTY", help="the property that is a Blob")
    add_uri(parser, positional=False)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--branch", metavar="B", help="its newest state; main if not given")
    place.add_argument("--snapshot", metavar="ID", help="the state that a commit left")
    return parser


def run_get(arguments: argparse.Namespace) -> int:
    """Write the bytes."""
    if arguments.offset < 0 or (arguments.length or 0) < 0:
        raise UsageError("--offset and --length cannot be negative")
    if arguments.out is None and terminal.is_terminal(sys.stdout):
        raise InputError(
            "a Blob is nothing for a terminal", hint="name a file with --out, or use a pipe"
        )
    with opened(arguments, "r") as (graph, _):
        snapshot = _snapshot(graph, arguments)
        size = _facts(snapshot, arguments).size
        end = size if arguments.length is None else min(size, arguments.offset + arguments.length)
        pieces = _pieces(snapshot, arguments, end)
        if arguments.out is None:
            for piece in pieces:
                terminal.show_bytes(piece)
        else:
            written = _write(Path(arguments.out), pieces)
            terminal.note(f"wrote {written} bytes to {arguments.out}")
    return terminal.OK


def run_stat(arguments: argparse.Namespace) -> int:
    """Tell what is known."""
    with opened(arguments, "r") as (graph, _):
        facts = _facts(_snapshot(graph, arguments), arguments)
    told = {
        "entity": arguments.entity,
        "type": arguments.type,
        "id": arguments.id,
        "property": arguments.property,
        "size": facts.size,
        "managed": facts.uri is None,
        "uri": facts.uri,
    }
    if arguments.json:
        terminal.show_json(told)
        return terminal.OK
    terminal.show(f"size: {facts.size}")
    terminal.show(f"managed: {'yes' if facts.uri is None else 'no'}")
    if facts.uri is not None:
        terminal.show(f"uri: {facts.uri}")
    return terminal.OK


def _snapshot(graph: Graph, arguments: argparse.Namespace) -> GraphSnapshot:
    return graph.snapshot(
        "main" if arguments.branch is None else arguments.branch, commit=arguments.snapshot
    )


def _cell(arguments: argparse.Namespace) -> tuple[str, str, str]:
    return f"{arguments.entity}:{arguments.type}", arguments.id, arguments.property


def _facts(snapshot: GraphSnapshot, arguments: argparse.Namespace) -> BlobInfo:
    found = snapshot.blob_info(*_cell(arguments))
    if found is None:
        raise NotFound(f"{arguments.type}.{arguments.property} of '{arguments.id}' is null")
    return found


def _pieces(snapshot: GraphSnapshot, arguments: argparse.Namespace, end: int) -> Iterator[bytes]:
    for start in range(arguments.offset, end, PIECE):
        piece = snapshot.read_blob(*_cell(arguments), start, min(PIECE, end - start))
        yield piece or b""


def _write(path: Path, pieces: Iterator[bytes]) -> int:
    """A file that is there when it is whole; a pipe or device is written as it comes."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            return sum(file.write(piece) for piece in pieces)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            written = sum(file.write(piece) for piece in pieces)
        part.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)
    return written
