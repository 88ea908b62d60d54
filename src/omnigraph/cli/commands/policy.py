"""``omnigraph policy``: check a bundle, run its test cases, and explain a decision.

A bundle is a file, the applied one of a cluster, or the one in force on a server.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.cli import files
from omnigraph.cli.flags import UsageError
from omnigraph.cli.operator_config import OperatorConfig, load_operator_config
from omnigraph.cli.options import add_repeatable
from omnigraph.cli.output import terminal
from omnigraph.cli.remote import connect, require_graph
from omnigraph.cli.scopes import GraphScope, ServerAddress, resolve_scope, resolve_server
from omnigraph.errors import InputError
from omnigraph.records import dataclass
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.cluster.applied import AppliedCluster, AppliedPolicy
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.policy.actions import Action
    from omnigraph.policy.cases import PolicyCase
    from omnigraph.policy.explain import RowExplanation
    from omnigraph.policy.policy import Policy

_MAIN = "main"


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="bundle, instead of a cluster's")


def add_policy_validate(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--schema", metavar="PG", help=".pg file to check the rules for rows with")


def add_policy_test(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--tests", required=True, metavar="FILE", help="YAML file of cases")


def add_policy_explain(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--actor", required=True, metavar="A", help="actor of the request")
    add_repeatable(parser, "--in-group", "NAME", "group that comes with the actor's token")
    parser.add_argument("--action", metavar="X", help="what the actor wants to do")
    parser.add_argument("--branch", metavar="B", help="branch that is read or changed")
    parser.add_argument(
        "--target-branch", metavar="T", help="branch that is created, deleted or merged into"
    )
    parser.add_argument("--query", metavar="NAME", help="stored query that is invoked")
    parser.add_argument("--type", metavar="T", help="type of a row; needs --id and a graph")
    parser.add_argument("--id", metavar="ID", help="id of a row")


# -- commands ------------------------------------------------------------------------------------


def run_policy_validate(arguments: argparse.Namespace) -> int:
    """Checks a bundle: its form, and the rules for rows against a schema file, the graph of --store
    or the graph of a cluster.
    """
    if arguments.schema is not None and arguments.store is not None:
        raise UsageError("--schema and --store are mutually exclusive: rows have one schema")
    source = _local_source(arguments)
    policy = source.policy
    catalog = _catalog(arguments, source)
    findings = () if catalog is None else policy.check_schema(catalog)
    errors = [f"policy '{policy.name}', {f}" for f in findings if f.severity == "error"]
    if errors:
        return terminal.fail(errors)
    for finding in findings:
        terminal.warn(f"policy '{policy.name}', {finding}")
    terminal.show(f"policy valid: bundle '{source.name}' [{len(policy.actors)} actors]")
    return terminal.OK


def run_policy_test(arguments: argparse.Namespace) -> int:
    """Runs the cases of a YAML file and reports those that are decided in another way."""
    from omnigraph.policy.cases import failed_cases, read_cases, run_cases

    cases = read_cases(files.read_text(arguments.tests).text, arguments.tests)
    server = _server(arguments)
    if server is not None:
        with _asking(*server) as ask:
            failures = failed_cases(cases, lambda case: _is_allowed(ask(_case_body(case)), case))
    else:
        source = _local_source(arguments)
        rows = any(case.row is not None for case in cases)
        if rows and source.graph_uri is not None:
            with _open(source.graph_uri) as graph:
                failures = run_cases(
                    source.policy, cases, lambda case: _sees(graph, source.policy, case)
                )
        else:
            failures = run_cases(source.policy, cases)
    if failures:
        return terminal.fail(["policy tests failed:", *map(str, failures)])
    terminal.show(f"policy tests passed: {len(cases)} cases")
    return terminal.OK


def run_policy_explain(arguments: argparse.Namespace) -> int:
    """Shows whether an actor may do something and the rule that decides, or whether it sees a row
    and what each rule for rows says about it.
    """
    if (arguments.type is None) != (arguments.id is None):
        raise UsageError("a row has a type and an id: pass --type and --id")
    if arguments.action is None and arguments.type is None:
        raise UsageError("nothing to explain: pass --action, or --type and --id")
    action = None if arguments.action is None else _action(arguments.action)
    server = _server(arguments)
    if server is not None:
        with _asking(*server) as ask:
            document = ask(_explain_body(arguments, action))
    else:
        document = _explain_here(arguments, action)
    terminal.show_lines(_explain_lines(document))
    return terminal.OK


def _explain_here(arguments: argparse.Namespace, action: Action | None) -> dict[str, Any]:
    from omnigraph.identity import Identity
    from omnigraph.policy.explain import ActionExplanation

    source = _local_source(arguments)
    policy, identity = source.policy, Identity(arguments.actor, frozenset(arguments.in_group))
    document: dict[str, Any] = {}
    if action is not None:
        branch, target, query = arguments.branch, arguments.target_branch, arguments.query
        decision = policy.decide(identity, action, branch, target, query=query)
        explained = ActionExplanation(decision, identity.id, action, branch, target, query)
        document = explained.to_json()
    if arguments.type is not None:
        if source.graph_uri is None:
            raise UsageError("a row is looked up in a graph: pass --store URI")
        with _open(source.graph_uri) as graph:
            row = _explain_row(
                graph, policy, identity, arguments.branch or _MAIN, arguments.type, arguments.id
            )
        document["row"] = row.to_json()
    return document


def _explain_lines(document: dict[str, Any]) -> Iterator[str]:
    for name, value in document.items():
        if name != "row":
            yield f"{name}: {value}"
    row = document.get("row")
    if row is None:
        return
    yield f"row: {'visible' if row['visible'] else 'hidden'}"
    for name in ("actor", "type", "id", "branch"):
        yield f"{name}: {row[name]}"
    for rule in row["rules"]:
        yield f"rule {rule['rule']}: {rule['verdict']}"
    yield f"message: {row['message']}"


def _action(text: str) -> Action:
    """An action in either spelling: ``branch-merge`` or ``branch_merge``."""
    from omnigraph.policy.actions import ACTIONS

    for action in ACTIONS:
        if action == text.replace("-", "_"):
            return action
    raise UsageError(f"invalid action '{text}'; expected {', '.join(ACTIONS)}")


# -- bundles -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _BundleSource:
    """A bundle, its name, and the storage of the graph that it is for, if there is one."""

    policy: Policy
    name: str
    graph_uri: str | None


def _local_source(arguments: argparse.Namespace) -> _BundleSource:
    from omnigraph.policy.bundle_file import written_scope
    from omnigraph.policy.policy import Policy

    if arguments.file is not None:
        if arguments.cluster is not None or arguments.graph is not None:
            raise UsageError("a bundle file and --cluster are mutually exclusive")
        text = files.read_text(arguments.file).text
        policy = Policy.parse(text, name=arguments.file, scope=written_scope(text))
        return _BundleSource(policy, arguments.file, arguments.store)
    if arguments.store is not None:
        raise UsageError("the storage of a graph has no bundle: pass the bundle FILE with it")
    operator = load_operator_config()
    scope = _scope(arguments, operator)
    if scope is None or scope.kind != "cluster":
        raise InputError(
            f"`{arguments.command}` needs a cluster, or the FILE of a bundle",
            hint="pass --cluster <dir|uri>, or a --profile that is bound to a cluster",
        )
    from omnigraph.cluster.applied import read_applied
    from omnigraph.cluster.location import cluster_root

    root = cluster_root(operator.clusters.get(scope.target, scope.target))
    applied = read_applied(root, Settings.from_environ())
    bundle, graph_id = _select(applied, scope)
    policy = Policy.parse(
        bundle.text, name=bundle.name, scope="server" if graph_id is None else "graph"
    )
    uris = {graph.graph_id: graph.uri for graph in applied.graphs}
    return _BundleSource(policy, bundle.name, None if graph_id is None else uris.get(graph_id))


def _scope(arguments: argparse.Namespace, operator: OperatorConfig) -> GraphScope | None:
    """The scope of the flags or of a profile; ``None`` if nothing names one."""
    has_profile = arguments.profile or Settings.from_environ().profile
    if arguments.cluster is None and arguments.server is None and not has_profile:
        return None
    return resolve_scope(arguments, operator)


def _select(applied: AppliedCluster, scope: GraphScope) -> tuple[AppliedPolicy, str | None]:
    """The bundle of a graph, or the only one; and the graph that it is for."""
    bound = {graph.graph_id: graph.policy for graph in applied.graphs if graph.policy is not None}
    if scope.graph is not None:
        policy = bound.get(scope.graph)
        if policy is None:
            raise InputError(f"no policy bundle bound to graph '{scope.graph}'")
        return policy, scope.graph
    bundles = {policy.name: policy for policy in bound.values()}
    if applied.server_policy is not None:
        bundles[applied.server_policy.name] = applied.server_policy
    if not bundles:
        raise InputError(f"cluster '{scope.target}' has no applied policy bundles")
    if len(bundles) > 1:
        names = ", ".join(sorted(bundles))
        raise InputError(f"the cluster has the policy bundles {names}: pass --graph <id>")
    (bundle,) = bundles.values()
    graphs = sorted(graph_id for graph_id, policy in bound.items() if policy.name == bundle.name)
    return bundle, graphs[0] if graphs else None


def _catalog(arguments: argparse.Namespace, source: _BundleSource) -> Catalog | None:
    """The schema to check the rules for rows with; ``None`` if nothing names one."""
    if arguments.schema is not None:
        from omnigraph.lang.schema.compile import compile_schema

        return compile_schema(files.read_source(arguments.schema))
    if source.graph_uri is None or not source.policy.restricts_rows:
        return None
    with _open(source.graph_uri) as graph:
        return graph.catalog


# -- rows ----------------------------------------------------------------------------------------


@contextmanager
def _open(uri: str) -> Iterator[Graph]:
    from omnigraph.api.graph import Graph

    with Graph.open(uri, "r") as graph:
        yield graph


def _explain_row(
    graph: Graph, policy: Policy, identity: Any, branch: str, type_name: str, row_id: str
) -> RowExplanation:
    from omnigraph.api.shown_rows import shown_by
    from omnigraph.policy.explain import explain_row

    snapshot = graph.snapshot(branch)
    return explain_row(
        identity.id,
        type_name,
        row_id,
        branch,
        policy.view(identity, branch, snapshot.catalog),
        policy.row_verdicts(identity, branch, snapshot.catalog, type_name),
        lambda views: shown_by(snapshot, views, type_name, row_id),
    )


def _sees(graph: Graph, policy: Policy, case: PolicyCase) -> bool:
    assert case.row is not None
    return _explain_row(graph, policy, case.identity, case.row_branch, *case.row).visible


# -- servers -------------------------------------------------------------------------------------


def _server(arguments: argparse.Namespace) -> tuple[ServerAddress, OperatorConfig] | None:
    """The server whose bundle is meant; ``None`` for a file or a cluster."""
    if arguments.file is not None:
        if arguments.server is not None:
            raise UsageError("a bundle file and --server are mutually exclusive")
        return None
    operator = load_operator_config()
    scope = _scope(arguments, operator)
    if scope is None or scope.kind != "server":
        return None
    address = resolve_server(scope.target, scope.graph, operator)
    require_graph(address, operator)
    return address, operator


@contextmanager
def _asking(
    server: ServerAddress, operator: OperatorConfig
) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """A function that lets a server explain a request by the bundle in force."""
    from omnigraph.client.server import unexpected_response

    connection = connect(server, operator)

    def explain(body: dict[str, Any]) -> dict[str, Any]:
        response = connection.post("policy", "explain", body=body)
        parts = [part for part in ("decision", "row") if part in response]
        if not isinstance(response, dict) or not parts:
            raise unexpected_response(server.base)
        return response

    try:
        yield explain
    finally:
        connection.close()


def _explain_body(arguments: argparse.Namespace, action: Action | None) -> dict[str, Any]:
    row = None if arguments.type is None else {"type": arguments.type, "id": arguments.id}
    body = {
        "actor": arguments.actor,
        "groups": arguments.in_group or None,
        "action": action,
        "branch": arguments.branch,
        "target_branch": arguments.target_branch,
        "query": arguments.query,
        "row": row,
    }
    return {name: value for name, value in body.items() if value is not None}


def _case_body(case: PolicyCase) -> dict[str, Any]:
    body = {
        "actor": case.actor,
        "groups": sorted(case.groups) or None,
        "attributes": dict(case.attributes) or None,
        "action": case.action,
        "branch": case.branch,
        "target_branch": case.target,
        "query": case.query,
        "row": None if case.row is None else dict(zip(("type", "id"), case.row, strict=True)),
    }
    return {name: value for name, value in body.items() if value is not None}


def _is_allowed(explained: dict[str, Any], case: PolicyCase) -> bool:
    if case.row is not None:
        return bool(explained["row"]["visible"])
    return bool(explained["decision"] == "allow")
