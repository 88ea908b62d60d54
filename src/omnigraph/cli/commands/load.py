"""``omnigraph load``, and ``ingest``, its old form."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli import files
from omnigraph.cli.engines import add_engine, chosen_spark
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import Bar, bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_local_files, add_uri, command
from omnigraph.cli.targets import consent, echo, find_target, opened
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.commit.receipts import LoadReceipt
    from omnigraph.progress import Progress

MODES = ("overwrite", "append", "merge")
FORMATS = ("ndjson", "csv", "parquet")


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "load",
        run,
        Capability.ANY,
        "load files into the graph",
        description="Loads NDJSON, CSV or Parquet files in one commit, here or on Spark.",
        writes=True,
    )
    add_uri(parser)
    parser.add_argument(
        "--data",
        required=True,
        action="append",
        metavar="FILE",
        help="a file, or a directory that an export wrote; again for more; - reads stdin",
    )
    parser.add_argument(
        "--mode", required=True, choices=MODES, help="what happens to rows that are there already"
    )
    _add_rest(parser)
    parser.add_argument("--from", dest="base", metavar="BASE", help="make the branch from this one")


def _add_rest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", default="main", metavar="B", help="where to")
    parser.add_argument(
        "--format", choices=FORMATS, help="the format, where the names of files do not tell it"
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="FILE=TYPE",
        help="which type a CSV or Parquet file holds, where its name does not tell",
    )
    parser.add_argument("--rejects", metavar="FILE", help="set bad records aside, in this file")
    parser.add_argument(
        "--max-rejects", type=int, metavar="N", help="fail when there are more bad records"
    )
    parser.add_argument(
        "--strict-properties", action="store_true", help="refuse properties the schema lacks"
    )
    add_local_files(parser)
    parser.add_argument("--dry-run", action="store_true", help="only check; write nothing")
    parser.add_argument(
        "--if-commit", metavar="ID", help="only if this is the newest commit; exit 4 otherwise"
    )
    parser.add_argument(
        "--idempotency-key", metavar="KEY", help="load once; a repeat gets the first answer"
    )
    parser.add_argument(
        "--no-indexes",
        dest="indexes",
        action="store_false",
        help="do not build missing indexes afterwards",
    )
    add_engine(parser, ("auto", "local", "spark"))
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load and tell."""
    target = find_target(arguments)
    target.storage(arguments.label)
    echo(arguments, target)
    if arguments.mode == "overwrite" and not arguments.dry_run:
        consent(arguments, target, "load --mode overwrite")
    with opened(arguments, "rw", target) as (graph, _):
        receipt = load(arguments, graph)
        built = _indexes(arguments, graph, receipt)
    for warning in receipt.warnings:
        terminal.warn(warning)
    if arguments.json:
        terminal.show_json(_told(arguments, target.uri, receipt, built))
    else:
        _show(arguments, target.uri, receipt, built)
    return terminal.OK


def load(arguments: argparse.Namespace, graph: Graph) -> LoadReceipt:
    """The load itself, with its bar."""
    data: Any = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    format = arguments.format
    if files.STDIN in arguments.data:
        if len(arguments.data) > 1:
            raise InputError("- reads all of stdin, and cannot stand beside files")
        data, format = files.piped_in(), format or "ndjson"
    with bar("load") as line:
        return graph.load(
            data,
            arguments.mode,
            arguments.branch,
            arguments.base,
            engine=arguments.engine,
            spark=chosen_spark(arguments),
            format=format,
            types=dict(map(_pair, arguments.type)),
            rejects=arguments.rejects,
            max_rejects=arguments.max_rejects,
            strict_properties=arguments.strict_properties,
            allow_local_files=arguments.allow_local_files,
            dry_run=arguments.dry_run,
            on_progress=lambda told: _draw(line, told),
            if_commit=arguments.if_commit,
            idempotency_key=arguments.idempotency_key,
        )


def _pair(text: str) -> tuple[str, str]:
    file, sign, name = text.rpartition("=")
    if not sign or not file or not name:
        raise InputError(f"'{text}' does not say which type a file holds", hint="FILE=TYPE")
    return file, name


def _draw(line: Bar, progress: Progress) -> None:
    if progress.total:
        line.show(progress.phase, progress.done, progress.total)
        return
    rejected = progress.detail.get("rejected")
    detail = f"{progress.done:,} {progress.unit}"
    line.show(progress.phase, detail=f"{detail}, {rejected:,} rejected" if rejected else detail)


def _indexes(arguments: argparse.Namespace, graph: Graph, receipt: LoadReceipt) -> int:
    """Build what the load left to be indexed; a second commit of its own."""
    if not arguments.indexes or receipt.commit_id is None or arguments.dry_run:
        return 0
    with bar("load") as line:
        line.show("indexes")
        return len(graph.indexes.ensure(arguments.branch).built)


def counts(receipt: LoadReceipt) -> dict[str, int]:
    """How many rows of how many types came."""
    told = {}
    for kind in ("node", "edge"):
        tables = [
            counts.affected for key, counts in receipt.tables.items() if key.startswith(f"{kind}:")
        ]
        told[f"{kind}s_loaded"] = sum(tables)
        told[f"{kind}_types_loaded"] = sum(1 for count in tables if count)
    names = ("nodes_loaded", "edges_loaded", "node_types_loaded", "edge_types_loaded")
    return {name: told[name] for name in names}


def _told(
    arguments: argparse.Namespace, uri: str, receipt: LoadReceipt, built: int
) -> dict[str, Any]:
    base = {} if arguments.base is None else {"base_branch": arguments.base}
    return {
        "uri": uri,
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


def _show(arguments: argparse.Namespace, uri: str, receipt: LoadReceipt, built: int) -> None:
    told = counts(receipt)
    verb = "would load" if receipt.dry_run else "loaded"
    if receipt.branch_created:
        terminal.show(f"branch {receipt.branch} created from {arguments.base}")
    terminal.show(
        f"{verb} {uri} on branch {receipt.branch} with {arguments.mode}: "
        f"{told['nodes_loaded']} nodes across {told['node_types_loaded']} node types, "
        f"{told['edges_loaded']} edges across {told['edge_types_loaded']} edge types"
    )
    if receipt.rejected:
        place = f" (see {arguments.rejects})" if arguments.rejects else ""
        terminal.show(f"rejected {receipt.rejected} records{place}")
    if receipt.commit_id is not None:
        terminal.show(f"commit_id: {receipt.commit_id}")
    if built:
        terminal.show(f"built {built} indexes")
