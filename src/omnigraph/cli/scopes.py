"""What a command addresses: one graph's storage, a server, or a cluster.

The answer comes from the command's own address, the global flags, a profile or the defaults, in
this order. Nothing is opened here, except the ledger of a cluster, which says where its graphs
lie.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

from omnigraph.cli.operator_config import Operator, Profile
from omnigraph.cli.registry import Capability
from omnigraph.errors import InputError
from omnigraph.settings import Settings

Kind = Literal["store", "server", "cluster"]


@dataclass(frozen=True, slots=True)
class Scope:
    """An address before it is clear whether the command can use it."""

    kind: Kind
    target: str
    graph: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A graph behind a server, or the server itself."""

    base: str
    graph: str | None

    @property
    def url(self) -> str:
        if self.graph is None:
            return self.base
        from urllib.parse import quote

        return f"{self.base}/graphs/{quote(self.graph, safe='', errors='surrogateescape')}"


def is_local(uri: str) -> bool:
    """Whether an address is on this machine."""
    return "://" not in uri or uri.startswith("file://")


def is_http(uri: str) -> bool:
    return uri.lower().startswith(("http://", "https://"))


def find_scope(arguments: argparse.Namespace, operator: Operator) -> Scope:
    """What the command is to work on."""
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
        return Scope("cluster", arguments.cluster, arguments.graph)
    if arguments.server is not None:
        return Scope("server", arguments.server, arguments.graph)
    store = own if own is not None else arguments.store
    if store is not None:
        if arguments.graph is not None:
            raise InputError(
                f"'{store}' is already a single graph; --graph cannot be combined with it"
            )
        return Scope("store", store)
    name = arguments.profile or Settings.from_environ().profile
    if name:
        return _of_profile(name, arguments.graph, operator)
    defaults = operator.defaults
    if defaults.server:
        return Scope("server", defaults.server, arguments.graph or defaults.default_graph)
    if defaults.store:
        return _store(defaults.store, arguments.graph)
    ways = "a URI, --store or --server" if hasattr(arguments, "uri") else "--store or --server"
    raise InputError(
        f"no graph addressed: pass {ways}, choose a --profile, or set `defaults.store` or "
        "`defaults.server` in the operator config"
    )


def _of_profile(name: str, graph: str | None, operator: Operator) -> Scope:
    profile = profile_named(name, operator)
    kind, target = profile.binding
    graph = graph or profile.default_graph
    if kind == "store":
        return _store(target, graph)
    return Scope("server" if kind == "server" else "cluster", target, graph)


def profile_named(name: str, operator: Operator) -> Profile:
    profile = operator.profiles.get(name)
    if profile is None:
        known = ", ".join(operator.profiles) or "none"
        raise InputError(f"unknown profile '{name}'", hint=f"defined: {known}")
    return profile


def _store(target: str, graph: str | None) -> Scope:
    if graph is not None:
        raise InputError(
            f"graph '{graph}' does not apply to a store scope: '{target}' is one graph"
        )
    return Scope("store", target)


def storage_of(arguments: argparse.Namespace, operator: Operator) -> str | Server:
    """The storage that a command opens itself, or the server that does it."""
    scope = find_scope(arguments, operator)
    is_direct = arguments.capability is Capability.DIRECT
    if scope.kind == "server":
        if is_direct:
            raise _needs_storage(arguments.label, f"'{scope.target}' is a server")
        return server_at(scope.target, scope.graph, operator)
    if scope.kind == "cluster":
        if not is_direct:
            raise InputError(
                f"a cluster scope is not valid for graph data commands such as `{arguments.label}`",
                hint="address its server with --server, or one graph with --store",
            )
        from omnigraph.cli.cluster_graphs import graph_of_cluster

        return graph_of_cluster(scope.target, scope.graph, operator)
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


def server_at(target: str, graph: str | None, operator: Operator) -> Server:
    """A server by its name in the configuration, or by its address."""
    url = target if "://" in target else operator.servers.get(target)
    if url is None:
        known = ", ".join(operator.servers) or "none"
        raise InputError(f"unknown server '{target}'; defined: {known}")
    from omnigraph.client.server import check_address

    check_address(url)
    if graph in ("", ".", ".."):
        raise InputError(f"'{graph}' is no id of a graph", hint="pass --graph <id>")
    return Server(url.rstrip("/"), graph)
