"""``omnigraph login`` and ``logout``: the token of a server, kept and forgotten."""

from __future__ import annotations

import argparse
import sys

from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_json, command
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    """Declare both commands."""
    parser = command(
        commands,
        "login",
        run_login,
        Capability.LOCAL,
        "keep the token of a server",
        description="Keeps the token of a server in the credentials file of the operator "
        "directory, which only you can read. Without --token it is read from stdin.",
    )
    parser.add_argument("name", metavar="NAME", help="the server, as the configuration calls it")
    parser.add_argument(
        "--token", metavar="T", help="the token; piping it in is safer, for other users can see T"
    )
    add_json(parser)
    parser = command(
        commands,
        "logout",
        run_logout,
        Capability.LOCAL,
        "forget the token of a server",
        description="Removes the token of a server from the credentials file. There need not be "
        "one.",
    )
    parser.add_argument("name", metavar="NAME", help="the server")
    add_json(parser)


def run_login(arguments: argparse.Namespace) -> int:
    """Keep a token."""
    from omnigraph.cli.credentials import store_token
    from omnigraph.cli.operator_config import config_path

    operator = load_operator()
    name = _checked(arguments.name)
    token = (_typed(name) if arguments.token is None else arguments.token).strip()
    if not token:
        raise InputError("no token provided", hint="pipe it in, or pass --token")
    if not token.isascii() or not token.isprintable():
        raise InputError("the token holds characters that cannot be sent", hint="copy it again")
    path = store_token(name, token)
    is_declared = name in operator.servers
    if not is_declared:
        terminal.note(
            f"note: '{name}' is not among the servers of {config_path()}; "
            "the token is used when it is"
        )
    told = {"server": name, "credentials_path": str(path), "declared": is_declared}
    terminal.show_either(arguments.json, told, f"stored credential for '{name}' in {path}")
    return terminal.OK


def run_logout(arguments: argparse.Namespace) -> int:
    """Forget a token."""
    from omnigraph.cli.credentials import remove_token

    load_operator()
    name = _checked(arguments.name)
    path = remove_token(name)
    told = {"server": name, "credentials_path": str(path)}
    terminal.show_either(arguments.json, told, f"removed credential for '{name}' from {path}")
    return terminal.OK


def _checked(name: str) -> str:
    found = name.strip()
    if not found or not found.isprintable() or set(found) & set("[]"):
        raise InputError(f"'{ascii(found)[1:-1]}' is no name of a server")
    return found


def _typed(name: str) -> str:
    """The first line of stdin; on a terminal it is not shown while it is typed."""
    if sys.stdin is None:
        return ""
    if terminal.is_terminal(sys.stdin):
        from getpass import getpass

        try:
            return getpass(f"token for {name}: ", stream=sys.stderr)
        except EOFError:
            return ""
    return sys.stdin.readline()
