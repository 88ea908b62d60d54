"""``omnigraph login`` and ``logout``: store and delete the token of a server."""

from __future__ import annotations

import argparse
import sys

from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.options import add_json
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "login",
        run_login,
        Capability.LOCAL,
        "store the token of a server",
        description="Stores the token of a server in the credentials file of the operator "
        "directory, which only you can read. Without --token it is read from stdin.",
    )
    parser.add_argument("name", metavar="NAME", help="server name in the configuration")
    parser.add_argument(
        "--token", metavar="T", help="the token; stdin is safer, because other users can see T"
    )
    add_json(parser)
    parser = command(
        commands,
        "logout",
        run_logout,
        Capability.LOCAL,
        "delete the token of a server",
        description="Deletes the token of a server from the credentials file, if there is one.",
    )
    parser.add_argument("name", metavar="NAME", help="server name")
    add_json(parser)


def run_login(arguments: argparse.Namespace) -> int:
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
