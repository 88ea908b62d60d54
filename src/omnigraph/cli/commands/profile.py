"""``omnigraph profile``: the scopes of the configuration, listed and resolved."""

from __future__ import annotations

import argparse
from typing import Any

from omnigraph.cli.operator_config import Operator, Profile, load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_json, command, family
from omnigraph.cli.scopes import profile_named
from omnigraph.settings import Settings


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "profile", "look at the profiles of the configuration")
    parser = command(
        forms,
        "list",
        run_list,
        Capability.LOCAL,
        "list the profiles",
        description="Lists the profiles of the configuration; the one that OMNIGRAPH_PROFILE "
        "names is marked.",
        label="profile",
    )
    add_json(parser)
    parser = command(
        forms,
        "show",
        run_show,
        Capability.LOCAL,
        "show what a profile addresses",
        description="Shows what a profile addresses. Without NAME it is the one that "
        "OMNIGRAPH_PROFILE names, and without that the defaults.",
        label="profile",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the profile")
    add_json(parser)


def run_list(arguments: argparse.Namespace) -> int:
    """List all, also those that cannot be used."""
    operator = load_operator()
    active = Settings.from_environ().profile
    told = [_row(profile, active) for profile in operator.profiles.values()]
    if arguments.json:
        terminal.show_json(told)
        return terminal.OK
    if not told:
        terminal.show("no profiles are defined")
    for row in told:
        mark = " (active)" if row["active"] else ""
        graph = f" · graph: {row['default_graph']}" if row["default_graph"] else ""
        terminal.show(f"{row['name']}{mark}  {row['binding']}{graph}")
    return terminal.OK


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
    """Show one, resolved."""
    operator = load_operator()
    told = _resolved(arguments.name or Settings.from_environ().profile, operator)
    if arguments.json:
        terminal.show_json(told)
        return terminal.OK
    kind, target = told["scope_kind"], told["target"]
    terminal.show(f"profile: {told['name']}")
    terminal.show(f"  scope:   {kind}{f' {target}' if target else ''}")
    if told["endpoint"] is not None:
        terminal.show(f"  endpoint: {told['endpoint']}")
    elif target is not None:
        terminal.show(f"  endpoint: ({kind} '{target}' is not defined in the configuration)")
    terminal.show(f"  default graph: {told['default_graph'] or '(none)'}")
    terminal.show(f"  output: {told['output_format']}")
    return terminal.OK


def _resolved(name: str, operator: Operator) -> dict[str, Any]:
    defaults = operator.defaults
    if name:
        profile = profile_named(name, operator)
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


def _endpoint(kind: str, target: str, operator: Operator) -> str | None:
    """Where it is in the end; nothing when a server's name is not defined."""
    if kind == "server":
        url = target if "://" in target else operator.servers.get(target)
        return None if url is None else url.rstrip("/")
    if kind == "cluster":
        return operator.clusters.get(target, target)
    return target or None
