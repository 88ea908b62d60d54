"""``omnigraph-server``: serves the applied state of a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from omnigraph.cli.commands.serve import add_server_options, serve
from omnigraph.cli.descriptors import occupy_closed, separate_stderr
from omnigraph.cli.output import terminal
from omnigraph.cli.program import report_error
from omnigraph.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server and return its exit code."""
    if argv is None:
        occupy_closed()
        separate_stderr()
    terminal.use_utf8()
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        if not arguments.cluster:
            raise InputError(
                "omnigraph-server boots from a cluster: pass --cluster <dir | storage-root URI>",
                hint="omnigraph serve serves a single graph",
            )
        return serve(
            arguments, kind="cluster", location=arguments.cluster, workers=arguments.workers
        )
    except KeyboardInterrupt:
        return terminal.fail("interrupted", exit_code=terminal.INTERRUPTED)
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        return report_error(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="omnigraph-server", description="Serves the graphs of a cluster over HTTP."
    )
    parser.add_argument(
        "--cluster", metavar="DIR|URI", help="directory of a cluster, or its storage root"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="reader processes; 1 is a single process (default: one per core, at most 4)",
    )
    add_server_options(parser)
    return parser
