"""Resolves what a command addresses: the storage of one graph, a server, or a cluster.

The command's own address comes first, then the global flags, a profile, and the defaults. Only the
ledger of a cluster is read here, to locate its graphs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

from omnigraph.cli.flags import Capability
from omnigraph.cli.operator_config import OperatorConfig, Profile
from omnigraph.errors import InputError
from omnigraph.records import dataclass
from omnigraph.settings import Settings

ScopeKind = Literal["store", "server", "cluster"]


@dataclass(frozen=True, slots=True)
class GraphScope:
    """An address, before checking that the command supports it."""

    kind: ScopeKind
    target: str
    graph: str | None = None


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A graph on a server, or the server itself."""

    base: str
    graph: str | None

    @property
    def url(self) -> str:
        if self.graph is None:
            return self.base
        from urllib.parse import quote

        return f"{self.base}/graphs/{quote(self.graph, safe='', errors='surrogateescape')}"


def is_local(uri: str) -> bool:
    """Whether an address is a path on this machine."""
    return "://" not in uri or uri.startswith("file://")


def is_http(uri: str) -> bool:
    return uri.lower().startswith(("http://", "https://"))


def resolve_scope(arguments: argparse.Namespace, operator: OperatorConfig) -> GraphScope:
    """Resolve the scope of a command."""
    own = getattr(arguments, "uri", None)
    given = [
        name
        for name, value in (
            ("a URI", own),
            ("--store", arguments.store),
            ("--server", arguments.server),
            ("--cluster", arguments.cluster),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are mutually exclusive", hint="pass one of them")
    if arguments.cluster is not None:
        return GraphScope("cluster", arguments.cluster, arguments.graph)
    if arguments.server is not None:
        return GraphScope("server", arguments.server, arguments.graph)
    store = own if own is not None else arguments.store
    if store is not None:
        if arguments.graph is not None:
            raise InputError(
                f"'{store}' is already a single graph; --graph cannot be combined with it"
            )
        return GraphScope("store", store)
    name = arguments.profile or Settings.from_environ().profile
    if name:
        return _profile_scope(name, arguments.graph, operator)
    defaults = operator.defaults
    if defaults.server:
        return GraphScope("server", defaults.server, arguments.graph or defaults.default_graph)
    if defaults.store:
        return _store_scope(defaults.store, arguments.graph)
    ways = "a URI, --store or --server" if hasattr(arguments, "uri") else "--store or --server"
    raise InputError(
        f"no graph addressed: pass {ways}, choose a --profile, or set `defaults.store` or "
        "`defaults.server` in the operator config",
        hint=_misplaced(getattr(arguments, "name", None)),
    )


def _misplaced(name: str | None) -> str | None:
    """The hint for a graph that was passed in place of a name, such as that of a query."""
    if name is None or not ("://" in name or Path(name).is_dir()):
        return None
    return f"'{name}' is taken for a name; pass the graph as --store {name}"


def _profile_scope(name: str, graph: str | None, operator: OperatorConfig) -> GraphScope:
    profile = find_profile(name, operator)
    kind, target = profile.binding
    graph = graph or profile.default_graph
    if kind == "store":
        return _store_scope(target, graph)
    return GraphScope("server" if kind == "server" else "cluster", target, graph)


def find_profile(name: str, operator: OperatorConfig) -> Profile:
    profile = operator.profiles.get(name)
    if profile is None:
        defined = ", ".join(operator.profiles) or "none"
        raise InputError(f"unknown profile '{name}'", hint=f"defined: {defined}")
    return profile


def _store_scope(target: str, graph: str | None) -> GraphScope:
    if graph is not None:
        raise InputError(
            f"graph '{graph}' does not apply to a store scope: '{target}' is one graph"
        )
    return GraphScope("store", target)


def resolve_address(arguments: argparse.Namespace, operator: OperatorConfig) -> str | ServerAddress:
    """Resolve the storage to open, or the server to send requests to."""
    scope = resolve_scope(arguments, operator)
    is_direct = arguments.capability is Capability.DIRECT
    if scope.kind == "server":
        if is_direct and not arguments.through_server:
            raise _needs_storage(arguments.label, f"'{scope.target}' is a server")
        return resolve_server(scope.target, scope.graph, operator)
    if scope.kind == "cluster":
        if not is_direct:
            raise InputError(
                f"a cluster scope is not valid for graph data commands such as `{arguments.label}`",
                hint="address its server with --server, or one graph with --store",
            )
        from omnigraph.cluster.location import cluster_root, find_graph

        root = cluster_root(operator.clusters.get(scope.target, scope.target))
        return find_graph(scope.target, root, scope.graph, Settings.from_environ())
    if is_http(scope.target):
        if is_direct:
            raise _needs_storage(arguments.label, f"'{scope.target}' is a remote server")
        raise InputError(
            f"'{scope.target}' is a server: it must be addressed with `--server <url>`"
        )
    return scope.target


def _needs_storage(label: str, reason: str) -> InputError:
    return InputError(
        f"`{label}` is a direct (storage-native) command and needs direct storage access; {reason}",
        hint="pass the URI of the graph's storage",
    )


def resolve_server(target: str, graph: str | None, operator: OperatorConfig) -> ServerAddress:
    """A server by its configured name, or by its URL."""
    url = target if "://" in target else operator.servers.get(target)
    if url is None:
        defined = ", ".join(operator.servers) or "none"
        raise InputError(f"unknown server '{target}'; defined: {defined}")
    from omnigraph.client.server import check_address

    check_address(url)
    if graph in ("", ".", ".."):
        raise InputError(f"invalid graph id '{graph}'", hint="pass --graph <id>")
    return ServerAddress(url.rstrip("/"), graph)
