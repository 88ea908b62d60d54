"""``omnigraph load``, ``ingest`` and ``export``: rows in and out of a graph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from omnigraph.cli import files
from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import (
    add_branch,
    add_engine,
    add_local_files,
    add_repeatable,
    add_snapshot,
    add_switch,
    add_write_conditions,
    snapshot_arguments,
    spark_config,
    whole_number,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.targets import (
    echo,
    open_for_write,
    open_graph,
    require_consent,
    resolve_target,
    take_snapshot,
)
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.receipts import LoadReceipt
    from omnigraph.remote.graph import RemoteGraph
    from omnigraph.spark.session.config import SparkConfig

MODES = ("overwrite", "append", "merge")
FORMATS = ("ndjson", "csv", "parquet")


def add_load(parser: argparse.ArgumentParser) -> None:
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
    about = "type of the rows in a CSV or Parquet file, if its name does not show it"
    add_repeatable(parser, "--type", "FILE=TYPE", about)
    parser.add_argument("--rejects", metavar="FILE", help="write invalid records to this file")
    parser.add_argument(
        "--max-rejects", type=whole_number(0), metavar="N", help="fail if more records are invalid"
    )
    add_switch(parser, "--strict-properties", "reject properties not in the schema")
    add_local_files(parser)
    add_switch(parser, "--dry-run", "validate only; write nothing")
    add_write_conditions(parser)
    parser.add_argument(
        "--no-indexes",
        dest="indexes",
        action="store_false",
        help="do not build missing indexes afterwards",
    )
    add_engine(parser, ("auto", "local", "spark"))


def run_load(arguments: argparse.Namespace) -> int:
    """Loads NDJSON, CSV or Parquet files in one commit, in this process or on Spark."""
    if files.STDIN in arguments.data and len(arguments.data) > 1:
        raise UsageError("- reads all of stdin and cannot be combined with files")
    spark = spark_config(arguments)
    target = resolve_target(arguments)
    echo(arguments, target)
    if arguments.mode == "overwrite" and not arguments.dry_run:
        require_consent(arguments, target, "load --mode overwrite")
    with open_graph(arguments, "rw", target) as (graph, _):
        receipt, built = _load(arguments, graph, spark, is_served=target.is_served)
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
    return show_report(arguments, document, _load_lines(document, arguments.rejects))


def _load(
    arguments: argparse.Namespace, graph: Graph, spark: SparkConfig | None, *, is_served: bool
) -> tuple[LoadReceipt, int]:
    """Load the files, and index what was loaded; returns the number of indexes that were built."""
    format = arguments.format
    if files.STDIN in arguments.data:
        data: Any = files.stdin_stream()
        format = format or "ndjson"
    else:
        data = [files.load_data(path) for path in arguments.data]
        data = data if len(data) > 1 else data[0]
    types = [text.rpartition("=") for text in arguments.type]
    for text, parts in zip(arguments.type, types, strict=True):
        if not all(parts):
            raise InputError(f"invalid --type '{text}'", hint="write it as FILE=TYPE")
    where = (data, arguments.mode, arguments.branch, arguments.base)
    with progress_bar("load") as line:
        options: dict[str, Any] = {
            "engine": arguments.engine,
            "spark": spark,
            "format": format,
            "types": {file: name for file, _, name in types},
            "rejects": arguments.rejects,
            "max_rejects": arguments.max_rejects,
            "strict_properties": arguments.strict_properties,
            "allow_local_files": arguments.allow_local_files,
            "dry_run": arguments.dry_run,
            "on_progress": line.update,
            "if_commit": arguments.if_commit,
            "idempotency_key": arguments.idempotency_key,
        }
        if is_served:
            from omnigraph.remote.loads import load

            calls = cast("RemoteGraph", graph).calls
            return load(calls, *where, indexes=arguments.indexes, **options)
        receipt = graph.load(*where, **options)
    return receipt, _build_indexes(arguments, graph, receipt)


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


def _load_lines(document: dict[str, Any], rejects: str | None) -> Iterator[str]:
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


def add_ingest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, metavar="FILE", help="file to load")
    parser.add_argument("--mode", choices=MODES, default="merge", help="how to treat existing rows")
    add_branch(parser, "branch to load into")
    parser.add_argument(
        "--from", dest="base", default="main", metavar="BASE", help="base of a new branch"
    )
    add_local_files(parser)


def run_ingest(arguments: argparse.Namespace) -> int:
    terminal.warn("`omnigraph ingest` is deprecated; use `omnigraph load` instead")
    with open_for_write(arguments) as (graph, target):
        receipt = graph.load(
            arguments.data,
            arguments.mode,
            arguments.branch,
            arguments.base,
            allow_local_files=arguments.allow_local_files,
        )
    document = {
        "uri": target.uri,
        "branch": receipt.branch,
        "base_branch": arguments.base,
        "branch_created": receipt.branch_created,
        "mode": arguments.mode,
        "tables": [
            {"table_key": key, "rows_loaded": counts.affected}
            for key, counts in sorted(receipt.tables.items())
        ],
        "actor_id": receipt.actor,
    }
    return show_report(arguments, document, _ingest_lines(document))


def _ingest_lines(document: dict[str, Any]) -> Iterator[str]:
    state = "created" if document["branch_created"] else "exists"
    yield (
        f"ingested {document['uri']} into branch {document['branch']} "
        f"from {document['base_branch']} with {document['mode']} (branch {state})"
    )
    for table in document["tables"]:
        yield f"{table['table_key']} rows_loaded={table['rows_loaded']}"
    yield from field_lines(document, "actor_id")


def add_export(parser: argparse.ArgumentParser) -> None:
    add_snapshot(parser, "tag")
    add_repeatable(parser, "--type", "T", "only this type; repeatable")
    add_repeatable(parser, "--table", "KEY", "only this table, such as node:Person; repeatable")
    parser.add_argument(
        "--format", choices=("ndjson", "parquet"), default="ndjson", help="output format"
    )
    parser.add_argument(
        "--out", metavar="PATH", help="output file, or directory for Parquet; default: stdout"
    )
    parser.add_argument("--jsonl", action="store_true", help=argparse.SUPPRESS)
    add_engine(parser, ("local", "spark"))


def run_export(arguments: argparse.Namespace) -> int:
    """Writes the graph as JSON lines, which `load` reads, or as Parquet files."""
    if arguments.jsonl:
        terminal.warn("`omnigraph export --jsonl` is deprecated; use `omnigraph export` instead")
    spark = spark_config(arguments)
    with open_graph(arguments, "r") as (graph, _):
        types = _types(graph, arguments.type, arguments.table)
        with progress_bar("export") as line:
            if arguments.out is not None:
                line.show("writing")
            snapshot = take_snapshot(graph, **snapshot_arguments(arguments))
            exported: Any = snapshot.export(
                arguments.out, arguments.format, types=types, engine=arguments.engine, spark=spark
            )
        if isinstance(exported, int):
            terminal.note(f"exported {exported} rows to {arguments.out}")
        else:
            for text in exported:
                terminal.show_json_text(text if text.endswith("\n") else f"{text}\n")
    return terminal.OK


def _types(graph: Graph, names: list[str], keys: list[str]) -> list[str] | None:
    """The table keys to export; a name may denote a node type, an edge type, or both."""
    if not names and not keys:
        return None
    catalog = graph.catalog
    tables = {node.table_key: name for name, node in catalog.node_types.items()}
    tables |= {edge.table_key: name for name, edge in catalog.edge_types.items()}
    for name in names:
        if name not in tables.values():
            existing = ", ".join(tables.values())
            raise InputError(f"unknown export type '{name}'", hint=f"types: {existing}")
    for key in keys:
        if key not in tables:
            raise InputError(f"unknown export table '{key}'", hint=f"tables: {', '.join(tables)}")
    return [key for key, name in tables.items() if name in names or key in keys]
