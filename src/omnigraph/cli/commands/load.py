"""``omnigraph load``: load files into a graph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.cli import files
from omnigraph.cli.engines import add_engine, spark_config
from omnigraph.cli.options import (
    add_branch,
    add_json,
    add_local_files,
    add_uri,
    add_write_conditions,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import echo, open_graph, require_consent, resolve_target
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.receipts import LoadReceipt

MODES = ("overwrite", "append", "merge")
FORMATS = ("ndjson", "csv", "parquet")


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "load",
        run,
        Capability.ANY,
        "load files into the graph",
        description="Loads NDJSON, CSV or Parquet files in one commit, in this process or on "
        "Spark.",
        writes=True,
    )
    add_uri(parser)
    parser.add_argument(
        "--data",
        required=True,
        action="append",
        metavar="FILE",
        help="file, or directory written by export; repeatable; - reads stdin",
    )
    parser.add_argument("--mode", required=True, choices=MODES, help="how to treat existing rows")
    add_branch(parser, "branch to load into")
    parser.add_argument("--from", dest="base", metavar="BASE", help="create the branch from BASE")
    parser.add_argument(
        "--format", choices=FORMATS, help="input format, if the file names do not show it"
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="FILE=TYPE",
        help="type of the rows in a CSV or Parquet file, if its name does not show it",
    )
    parser.add_argument("--rejects", metavar="FILE", help="write invalid records to this file")
    parser.add_argument(
        "--max-rejects", type=int, metavar="N", help="fail if more records are invalid"
    )
    parser.add_argument(
        "--strict-properties", action="store_true", help="reject properties not in the schema"
    )
    add_local_files(parser)
    parser.add_argument("--dry-run", action="store_true", help="validate only; write nothing")
    add_write_conditions(parser)
    parser.add_argument(
        "--no-indexes",
        dest="indexes",
        action="store_false",
        help="do not build missing indexes afterwards",
    )
    add_engine(parser, ("auto", "local", "spark"))
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    target = resolve_target(arguments)
    target.storage(arguments.label)
    echo(arguments, target)
    if arguments.mode == "overwrite" and not arguments.dry_run:
        require_consent(arguments, target, "load --mode overwrite")
    with open_graph(arguments, "rw", target) as (graph, _):
        receipt = _load(arguments, graph)
        built = _build_indexes(arguments, graph, receipt)
    for warning in receipt.warnings:
        terminal.warn(warning)
    base = {} if arguments.base is None else {"base_branch": arguments.base}
    document = {
        "uri": target.uri,
        "branch": receipt.branch,
        "mode": arguments.mode,
        **base,
        "branch_created": receipt.branch_created,
        **counts(receipt),
        "commit_id": receipt.commit_id,
        "records": receipt.records,
        "rejected": receipt.rejected,
        "ignored": dict(sorted(receipt.ignored.items())),
        "dry_run": receipt.dry_run,
        "indexes_built": built,
    }
    return show_report(arguments, document, _lines(document, arguments.rejects))


def _load(arguments: argparse.Namespace, graph: Graph) -> LoadReceipt:
    data: Any = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    format = arguments.format
    if files.STDIN in arguments.data:
        if len(arguments.data) > 1:
            raise InputError("- reads all of stdin and cannot be combined with files")
        data, format = files.stdin_stream(), format or "ndjson"
    with progress_bar("load") as line:
        return graph.load(
            data,
            arguments.mode,
            arguments.branch,
            arguments.base,
            engine=arguments.engine,
            spark=spark_config(arguments),
            format=format,
            types=dict(map(_parse_type, arguments.type)),
            rejects=arguments.rejects,
            max_rejects=arguments.max_rejects,
            strict_properties=arguments.strict_properties,
            allow_local_files=arguments.allow_local_files,
            dry_run=arguments.dry_run,
            on_progress=line.update,
            if_commit=arguments.if_commit,
            idempotency_key=arguments.idempotency_key,
        )


def _parse_type(text: str) -> tuple[str, str]:
    file, sign, name = text.rpartition("=")
    if not sign or not file or not name:
        raise InputError(f"invalid --type '{text}'", hint="write it as FILE=TYPE")
    return file, name


def _build_indexes(arguments: argparse.Namespace, graph: Graph, receipt: LoadReceipt) -> int:
    """Index the loaded rows, in a second commit."""
    if not arguments.indexes or receipt.commit_id is None or arguments.dry_run:
        return 0
    with progress_bar("load") as line:
        line.show("indexes")
        return len(graph.indexes.ensure(arguments.branch).built)


def counts(receipt: LoadReceipt) -> dict[str, int]:
    """The number of rows and types loaded."""
    rows: dict[str, list[int]] = {"node": [], "edge": []}
    for key, table in receipt.tables.items():
        rows[key.partition(":")[0]].append(table.affected)
    return {
        "nodes_loaded": sum(rows["node"]),
        "edges_loaded": sum(rows["edge"]),
        "node_types_loaded": sum(map(bool, rows["node"])),
        "edge_types_loaded": sum(map(bool, rows["edge"])),
    }


def _lines(document: dict[str, Any], rejects: str | None) -> Iterator[str]:
    if document["branch_created"]:
        yield f"branch {document['branch']} created from {document['base_branch']}"
    yield (
        f"{'would load' if document['dry_run'] else 'loaded'} {document['uri']} on branch "
        f"{document['branch']} with {document['mode']}: "
        f"{document['nodes_loaded']} nodes across {document['node_types_loaded']} node types, "
        f"{document['edges_loaded']} edges across {document['edge_types_loaded']} edge types"
    )
    if document["rejected"]:
        yield f"rejected {document['rejected']} records{f' (see {rejects})' if rejects else ''}"
    yield from field_lines(document, "commit_id")
    if document["indexes_built"]:
        yield f"built {document['indexes_built']} indexes"
