"""``omnigraph cluster``: graphs, queries and policies as declared state."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from omnigraph.cli import files
from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.output import cluster_lines, terminal
from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.errors import InputError, NotFound
from omnigraph.escaping import escape
from omnigraph.settings import Settings

MOST_LISTED = 1_000


class _Report(Protocol):
    @property
    def ok(self) -> bool: ...

    def to_json(self) -> dict[str, Any]: ...


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", default=".", metavar="DIR", help="directory with the cluster.yaml"
    )


add_cluster_validate = _add_config
add_cluster_import = _add_config
add_cluster_status = _add_config
add_cluster_refresh = _add_config
add_cluster_drift = _add_config


def add_cluster_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="new directory")
    parser.add_argument("--graph-id", default="kb", metavar="ID", help="id of the first graph")


def add_cluster_plan(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("--out", metavar="FILE", help="write the plan to a file, for apply")


def add_cluster_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plan", nargs="?", metavar="PLAN", help="file of plan --out: apply exactly that, or nothing"
    )
    _add_config(parser)


def add_cluster_approve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="address, such as graph.kb")
    _add_config(parser)


def add_cluster_force_unlock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lock_id", metavar="LOCK_ID", help="id of the lock, as status shows it")
    _add_config(parser)


def add_cluster_deployments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "deployment_id", nargs="?", metavar="ID", help="deployment to show with its report"
    )
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="list the newest N (default 20)"
    )
    _add_config(parser)


# -- commands ------------------------------------------------------------------------------------


def run_cluster_init(arguments: argparse.Namespace) -> int:
    """Creates a directory with a cluster.yaml, a schema and a stored query to start from. Existing
    files are never overwritten.
    """
    from omnigraph.cluster.scaffold import scaffold

    written = scaffold(Path(arguments.directory), arguments.graph_id)
    if arguments.json:
        terminal.show_json({"ok": True, "config_dir": arguments.directory, "files": written})
        return terminal.OK
    terminal.show(f"cluster init: {len(written)} file(s) in {arguments.directory}")
    terminal.show_lines(f"  {name}" for name in written)
    return terminal.OK


def run_cluster_validate(arguments: argparse.Namespace) -> int:
    """Checks the configuration, and every schema, query and policy that it names. No storage is
    read.
    """
    from omnigraph.cluster.state_commands import validate_cluster

    report = validate_cluster(_bundle(arguments))
    return _show(arguments, report, cluster_lines.validate_lines(report))


def run_cluster_import(arguments: argparse.Namespace) -> int:
    """Writes the first ledger. Graphs that exist already are adopted with the schema that they
    have; missing ones are created by the next apply.
    """
    from omnigraph.cluster.state_commands import import_cluster

    report = import_cluster(_bundle(arguments), Settings.from_environ())
    return _show(arguments, report, cluster_lines.observed_lines(report))


def run_cluster_refresh(arguments: argparse.Namespace) -> int:
    """Records what graphs and stored texts are like now, after they were changed by other means."""
    from omnigraph.cluster.state_commands import refresh_cluster

    report = refresh_cluster(_bundle(arguments), Settings.from_environ())
    return _show(arguments, report, cluster_lines.observed_lines(report))


def run_cluster_status(arguments: argparse.Namespace) -> int:
    """Shows the ledger, the lock, interrupted operations and damaged texts. No graph is opened,
    nothing is written.
    """
    from omnigraph.cluster.state_commands import cluster_status

    report = cluster_status(_bundle(arguments), Settings.from_environ())
    return _show(arguments, report, cluster_lines.status_lines(report))


def run_cluster_drift(arguments: argparse.Namespace) -> int:
    """Compares the ledger with the graphs and the stored texts. Takes no lock, writes nothing."""
    from omnigraph.cluster.drift import cluster_drift

    report = cluster_drift(_bundle(arguments), Settings.from_environ())
    return _show(arguments, report, cluster_lines.drift_lines(report))


def run_cluster_plan(arguments: argparse.Namespace) -> int:
    """Shows what an apply would do: resources, schema migrations, queries that break, and who gains
    and loses what by changed policies. Takes no lock, writes nothing but the file of --out.
    """
    from omnigraph.cluster.plan import plan_cluster
    from omnigraph.cluster.plan_file import plan_text

    report, storage = plan_cluster(_bundle(arguments), Settings.from_environ())
    if arguments.out is not None and report.ok:
        try:
            Path(arguments.out).write_text(plan_text(report, storage), "utf-8")
        except OSError as error:
            reason = terminal.describe_os_error(error)
            raise InputError(f"cannot write the plan: {reason}") from None
    return _show(arguments, report, cluster_lines.plan_lines(report))


def run_cluster_apply(arguments: argparse.Namespace) -> int:
    """Creates and migrates graphs, publishes queries and policies, and records all of it in the
    ledger. Running it again completes what an interrupted apply left. Servers take it over by
    themselves. With --server the files are sent, and the server applies them to its cluster.
    """
    from omnigraph.cluster.apply import apply_cluster
    from omnigraph.cluster.plan_file import read_plan

    if arguments.server is not None:
        return _apply_on_server(arguments)
    reviewed = None
    if arguments.plan is not None:
        reviewed = read_plan(files.read_text(arguments.plan).text, arguments.plan)
    report = apply_cluster(
        _bundle(arguments), Settings.from_environ(), actor=_actor(arguments), reviewed=reviewed
    )
    return _show(arguments, report, cluster_lines.apply_lines(report.to_json()))


def _apply_on_server(arguments: argparse.Namespace) -> int:
    """Send the files; what is wrong with them is reported without the server."""
    from omnigraph.cli.remote import connect
    from omnigraph.cli.scopes import resolve_server
    from omnigraph.client.server import unexpected_response
    from omnigraph.cluster.diagnostics import DiagnosticLog
    from omnigraph.cluster.reports import ApplyReport
    from omnigraph.cluster.sent_bundle import files_to_send
    from omnigraph.cluster.state_commands import no_state

    if vars(arguments)["as"] is not None:
        raise InputError("`--as` is not allowed on a served write: the token determines the actor")
    operator, log, bundle = load_operator_config(), DiagnosticLog(), _bundle(arguments)
    files_sent = files_to_send(bundle, arguments.config, log)
    if not log.ok:
        report = ApplyReport(bundle.name, None, None, no_state(), diagnostics=log.entries)
        return _show(arguments, report, cluster_lines.apply_lines(report.to_json()))
    body: dict[str, Any] = {"files": files_sent}
    if arguments.plan is not None:
        body["plan"] = files.read_text(arguments.plan).text
    address = resolve_server(arguments.server, None, operator)
    connection = connect(address, operator)
    try:
        deployment = connection.post("cluster", "apply", body=body, changes=True)
    finally:
        connection.close()
    try:
        applied = {**deployment["report"], "config_dir": bundle.name}
        lines = list(cluster_lines.apply_lines(applied, deployment))
    except (KeyError, TypeError, AttributeError):
        raise unexpected_response(address.base) from None
    if arguments.json:
        terminal.show_json({**applied, "deployment": deployment["id"]})
    else:
        terminal.show_lines(lines)
    return terminal.OK if applied["ok"] else terminal.FAILURE


def run_cluster_deployments(arguments: argparse.Namespace) -> int:
    """Lists the applies that servers of the cluster were asked for, newest first, or shows one with
    its report. The records are read from the storage of the cluster, or with --server by a server.
    """
    if not 1 <= arguments.limit <= MOST_LISTED:
        raise InputError(f"--limit must be between 1 and {MOST_LISTED}")
    of = _records_of_storage if arguments.server is None else _records_of_server
    document = of(arguments)
    if arguments.json:
        terminal.show_json(document)
    elif arguments.deployment_id is None:
        terminal.show_lines(cluster_lines.deployments_lines(document["deployments"]))
    else:
        terminal.show_lines(cluster_lines.deployment_lines(document))
    return terminal.OK


def _records_of_storage(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from omnigraph.cluster.deployments import Deployments
    from omnigraph.cluster.session import open_session

    session, log = open_session(_bundle(arguments), Settings.from_environ(), header=True)
    if session is None:
        raise InputError(log.entries[0].line)
    records = Deployments(session.storage)
    if arguments.deployment_id is None:
        newest = records.newest(arguments.limit)
        return {"deployments": [record.to_json(is_whole=False) for record in newest]}
    record = records.read(arguments.deployment_id)
    if record is None:
        raise NotFound(f"there is no deployment '{escape(arguments.deployment_id)}'")
    return record.to_json()


def _records_of_server(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from omnigraph.cli.remote import connect
    from omnigraph.cli.scopes import resolve_server
    from omnigraph.client.server import unexpected_response
    from omnigraph.remote import deployments
    from omnigraph.remote.documents import decoding

    operator = load_operator_config()
    address = resolve_server(arguments.server, None, operator)
    connection = connect(address, operator)
    try:
        if arguments.deployment_id is None:
            document = connection.send(deployments.list_newest(arguments.limit))
            read: Any = deployments.deployments_of
        else:
            document = connection.send(deployments.show(arguments.deployment_id))
            read = deployments.deployment_of
    finally:
        connection.close()
    with decoding(address.base):
        read(document)
    if not isinstance(document, dict):
        raise unexpected_response(address.base)
    return document


def run_cluster_approve(arguments: argparse.Namespace) -> int:
    """Approves one change that deletes data, for the configuration and the state as they are now.
    Any other edit of the configuration makes the approval stale, and it expires after seven days.
    """
    from omnigraph.cluster.plan import approve_change

    actor = _actor(arguments)
    if actor is None:
        raise InputError("`cluster approve` needs an actor", hint="pass --as <actor>")
    report = approve_change(_bundle(arguments), Settings.from_environ(), arguments.resource, actor)
    return _show(arguments, report, cluster_lines.approve_lines(report))


def run_cluster_force_unlock(arguments: argparse.Namespace) -> int:
    """Removes the lock of a process that does not exist any more, if it has this id. A lock expires
    by itself when its holder is dead; only locks of other programs need this.
    """
    from omnigraph.cluster.state_commands import force_unlock

    report = force_unlock(_bundle(arguments), Settings.from_environ(), arguments.lock_id)
    return _show(arguments, report, cluster_lines.unlock_lines(report))


# -- shared parts --------------------------------------------------------------------------------


def _bundle(arguments: argparse.Namespace) -> DirectoryBundle:
    return DirectoryBundle(arguments.config)


def _actor(arguments: argparse.Namespace) -> str | None:
    actor: str | None = vars(arguments)["as"]
    return load_operator_config().actor if actor is None else actor


def _show(arguments: argparse.Namespace, report: _Report, lines: Iterable[str]) -> int:
    """Print a report; its problems are part of it, so all of it is on stdout."""
    if arguments.json:
        terminal.show_json(report.to_json())
    else:
        terminal.show_lines(lines)
    return terminal.OK if report.ok else terminal.FAILURE
