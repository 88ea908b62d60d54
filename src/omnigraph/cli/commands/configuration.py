"""``omnigraph profile``, ``login``, ``logout``, ``graphs`` and ``version``: without a graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.about import VERSION
from omnigraph.cli.operator_config import OperatorConfig, Profile, load_operator_config
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.remote import list_graphs
from omnigraph.cli.scopes import find_profile, resolve_scope, resolve_server
from omnigraph.errors import InputError
from omnigraph.settings import Settings


def add_profile_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="profile to show")


def run_profile_list(arguments: argparse.Namespace) -> int:
    """Lists the profiles of the configuration and marks the active one (OMNIGRAPH_PROFILE)."""
    operator = load_operator_config()
    active = Settings.from_environ().profile
    rows = [_profile_row(profile, active) for profile in operator.profiles.values()]
    return show_report(
        arguments, rows, map(_profile_line, rows) if rows else "no profiles are defined"
    )


def _profile_line(row: dict[str, Any]) -> str:
    mark = " (active)" if row["active"] else ""
    graph = f" · graph: {row['default_graph']}" if row["default_graph"] else ""
    return f"{row['name']}{mark}  {row['binding']}{graph}"


def _profile_row(profile: Profile, active: str) -> dict[str, Any]:
    fault = profile.fault
    kind, target = ("invalid", None) if fault is not None else profile.binding
    return {
        "name": profile.name,
        "binding": f"{kind}: {fault if fault is not None else target}",
        "scope_kind": kind,
        "target": target,
        "valid": fault is None,
        "error": fault,
        "default_graph": profile.default_graph,
        "active": profile.name == active,
    }


def run_profile_show(arguments: argparse.Namespace) -> int:
    """Shows what a profile addresses. Without NAME, shows the active profile (OMNIGRAPH_PROFILE),
    or else the defaults.
    """
    operator = load_operator_config()
    document = _resolve(arguments.name or Settings.from_environ().profile, operator)
    return show_report(arguments, document, _profile_lines(document))


def _profile_lines(document: dict[str, Any]) -> Iterator[str]:
    kind, target = document["scope_kind"], document["target"]
    yield f"profile: {document['name']}"
    yield f"  scope:   {kind}{f' {target}' if target else ''}"
    if document["endpoint"] is not None:
        yield f"  endpoint: {document['endpoint']}"
    elif target is not None:
        yield f"  endpoint: ({kind} '{target}' is not defined in the configuration)"
    yield f"  default graph: {document['default_graph'] or '(none)'}"
    yield f"  output: {document['output_format']}"


def _resolve(name: str, operator: OperatorConfig) -> dict[str, Any]:
    defaults = operator.defaults
    if name:
        profile = find_profile(name, operator)
        kind, target = profile.binding
        graph = profile.default_graph
        if graph is None and kind != "store":
            graph = defaults.default_graph
    else:
        name = "(defaults)"
        kind = "server" if defaults.server else "store" if defaults.store else "none"
        target = defaults.server or defaults.store or ""
        graph = defaults.default_graph
    return {
        "name": name,
        "scope_kind": kind,
        "target": target or None,
        "endpoint": _endpoint(kind, target, operator),
        "default_graph": graph,
        "output_format": defaults.output,
    }


def _endpoint(kind: str, target: str, operator: OperatorConfig) -> str | None:
    """The resolved address; ``None`` for a server name without a definition."""
    if kind == "server":
        url = target if "://" in target else operator.servers.get(target)
        return None if url is None else url.rstrip("/")
    if kind == "cluster":
        return operator.clusters.get(target, target)
    return target or None


def add_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="server name in the configuration")
    parser.add_argument(
        "--token", metavar="T", help="the token; stdin is safer, because other users can see T"
    )


def add_logout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="server name")


def run_login(arguments: argparse.Namespace) -> int:
    """Stores the token of a server in the credentials file of the operator directory, which only
    you can read. Without --token it is read from stdin.
    """
    from omnigraph.cli.credentials import store_token
    from omnigraph.cli.operator_config import config_path

    operator = load_operator_config()
    name = _check_name(arguments.name)
    token = (_read_token(name) if arguments.token is None else arguments.token).strip()
    if not token:
        raise InputError("no token provided", hint="pipe it in, or pass --token")
    if not token.isascii() or not token.isprintable():
        raise InputError("the token contains characters that cannot be sent", hint="copy it again")
    path = store_token(name, token)
    is_declared = name in operator.servers
    if not is_declared:
        terminal.note(
            f"note: '{name}' is not among the servers of {config_path()}; "
            "the token is used once it is added"
        )
    document = {"server": name, "credentials_path": str(path), "declared": is_declared}
    return show_report(arguments, document, f"stored credential for '{name}' in {path}")


def run_logout(arguments: argparse.Namespace) -> int:
    """Deletes the token of a server from the credentials file, if there is one."""
    from omnigraph.cli.credentials import remove_token

    load_operator_config()
    name = _check_name(arguments.name)
    path = remove_token(name)
    document = {"server": name, "credentials_path": str(path)}
    return show_report(arguments, document, f"removed credential for '{name}' from {path}")


def _check_name(text: str) -> str:
    name = text.strip()
    if not name or not name.isprintable() or set(name) & set("[]"):
        raise InputError(f"invalid server name '{ascii(name)[1:-1]}'")
    return name


def _read_token(name: str) -> str:
    """The first line of stdin; hidden while it is typed at a terminal."""
    if sys.stdin is None:
        return ""
    if terminal.is_terminal(sys.stdin):
        from getpass import getpass

        try:
            return getpass(f"token for {name}: ", stream=sys.stderr)
        except EOFError:
            return ""
    return sys.stdin.readline()


def run_graphs_list(arguments: argparse.Namespace) -> int:
    operator = load_operator_config()
    scope = resolve_scope(arguments, operator)
    if scope.kind != "server":
        raise InputError(
            "`graphs list` requires a remote multi-graph server", hint="address one with --server"
        )
    # The request goes to the server itself; its default graph is ignored.
    graphs = list_graphs(resolve_server(scope.target, None, operator), operator)
    if arguments.json:
        terminal.show_json({"graphs": graphs})
        return terminal.OK
    for graph in graphs:
        terminal.show_fields(graph["graph_id"], graph["uri"])
    return terminal.OK


def run_version(arguments: argparse.Namespace) -> int:
    terminal.show_lines(VERSION.splitlines())
    return terminal.OK
