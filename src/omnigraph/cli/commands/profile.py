"""``omnigraph profile``: list and resolve the profiles of the configuration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.operator_config import OperatorConfig, Profile, load_operator_config
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, family
from omnigraph.cli.scopes import find_profile
from omnigraph.settings import Settings


def add(commands: Commands) -> None:
    profile = family(
        commands, "profile", "show the profiles of the configuration", Capability.LOCAL
    )
    profile.add(
        "list",
        run_list,
        "list profiles",
        description="Lists the profiles of the configuration and marks the active one "
        "(OMNIGRAPH_PROFILE).",
        uri=None,
    )
    parser = profile.add(
        "show",
        run_show,
        "show what a profile addresses",
        description="Shows what a profile addresses. Without NAME, shows the active profile "
        "(OMNIGRAPH_PROFILE), or else the defaults.",
        uri=None,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="profile to show")


def run_list(arguments: argparse.Namespace) -> int:
    """List all profiles, including invalid ones."""
    operator = load_operator_config()
    active = Settings.from_environ().profile
    rows = [_row(profile, active) for profile in operator.profiles.values()]
    return show_report(arguments, rows, map(_line, rows) if rows else "no profiles are defined")


def _line(row: dict[str, Any]) -> str:
    mark = " (active)" if row["active"] else ""
    graph = f" · graph: {row['default_graph']}" if row["default_graph"] else ""
    return f"{row['name']}{mark}  {row['binding']}{graph}"


def _row(profile: Profile, active: str) -> dict[str, Any]:
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


def run_show(arguments: argparse.Namespace) -> int:
    operator = load_operator_config()
    document = _resolve(arguments.name or Settings.from_environ().profile, operator)
    return show_report(arguments, document, _lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
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
    """The resolved address; none for a server name without a definition."""
    if kind == "server":
        url = target if "://" in target else operator.servers.get(target)
        return None if url is None else url.rstrip("/")
    if kind == "cluster":
        return operator.clusters.get(target, target)
    return target or None
