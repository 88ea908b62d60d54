"""``omnigraph blob``: the bytes of one Blob value, their size and location; setting it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli import files
from omnigraph.cli.command_context import stdout
from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import (
    add_branch,
    add_snapshot,
    add_switch,
    add_write_conditions,
    snapshot_arguments,
    whole_number,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import field_lines, show_report, yes_no
from omnigraph.cli.targets import open_for_write, open_graph, resolve_target, take_snapshot
from omnigraph.errors import InputError, NotFound

if TYPE_CHECKING:
    from omnigraph.api.blob_info import BlobInfo
    from omnigraph.api.snapshot import GraphSnapshot
    from omnigraph.commit.receipts import Receipt

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
    add_switch(parser, "--digest", "also show the digest of the bytes, which reads them")


def add_blob_put(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--file", required=True, metavar="PATH", help="the bytes; - reads stdin")
    add_branch(parser, "branch to change")
    _add_condition(parser)
    add_switch(parser, "--if-null", "fail with exit code 4 unless the Blob is null")
    add_write_conditions(parser)


def add_blob_delete(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    add_branch(parser, "branch to change")
    _add_condition(parser)
    add_write_conditions(parser)


def _add_condition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--if-digest", metavar="D", help="fail with exit code 4 unless the Blob has this digest"
    )


def _add_cell(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    add_snapshot(parser)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entity", choices=("node", "edge"), metavar="ENTITY", help="node or edge")
    parser.add_argument("type", metavar="TYPE", help="its type")
    parser.add_argument("id", metavar="ID", help="its id")
    parser.add_argument("property", metavar="PROPERTY", help="its Blob property")


def run_blob_get(arguments: argparse.Namespace) -> int:
    """Streams the bytes of one Blob to a file or a pipe; never to a terminal."""
    if arguments.out is None and terminal.is_terminal(stdout()):
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
        snapshot = take_snapshot(graph, **snapshot_arguments(arguments))
        info = _info(snapshot, arguments)
        digest = snapshot.blob_digest(*_cell(arguments)) if arguments.digest else None
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
    if arguments.digest:
        document["digest"] = fields["digest"] = digest
    return show_report(arguments, document, field_lines(fields))


def run_blob_put(arguments: argparse.Namespace) -> int:
    """Sets a Blob of an existing node or edge to the bytes of a file, in one commit."""
    if arguments.if_null and arguments.if_digest is not None:
        raise UsageError("pass only one of --if-digest and --if-null")
    target = resolve_target(arguments)
    data = files.read_bytes(arguments.file)
    with open_for_write(arguments, target) as (graph, _):
        rules = {"if_null": arguments.if_null, **_rules(arguments)}
        receipt = graph.blobs.put(*_cell(arguments), data, arguments.branch, **rules)
    return _show_write(arguments, receipt, len(data))


def run_blob_delete(arguments: argparse.Namespace) -> int:
    """Sets a Blob of an existing node or edge to null, in one commit; if it is null already, there
    is no commit.
    """
    with open_for_write(arguments) as (graph, _):
        receipt = graph.blobs.delete(*_cell(arguments), arguments.branch, **_rules(arguments))
    return _show_write(arguments, receipt, None)


def _rules(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "if_digest": arguments.if_digest,
        "if_commit": arguments.if_commit,
        "idempotency_key": arguments.idempotency_key,
    }


def _show_write(arguments: argparse.Namespace, receipt: Receipt, size: int | None) -> int:
    document = {
        "branch": receipt.branch,
        "entity": arguments.entity,
        "type": arguments.type,
        "id": arguments.id,
        "property": arguments.property,
        "size": size,
        "actor_id": receipt.actor,
        "commit_id": receipt.commit_id,
    }
    fields = {"size": size, "commit_id": receipt.commit_id}
    verb = "set" if size is not None else "removed" if receipt.commit_id else "nothing to remove:"
    line = f"{verb} {arguments.type}.{arguments.property} of '{arguments.id}'"
    return show_report(arguments, document, [line, *field_lines(fields)])


def _cell(arguments: argparse.Namespace) -> tuple[str, str, str]:
    return f"{arguments.entity}:{arguments.type}", arguments.id, arguments.property


def _info(snapshot: GraphSnapshot, arguments: argparse.Namespace) -> BlobInfo:
    info = snapshot.blob_info(*_cell(arguments))
    if info is None:
        raise NotFound(f"{arguments.type}.{arguments.property} of '{arguments.id}' is null")
    return info
