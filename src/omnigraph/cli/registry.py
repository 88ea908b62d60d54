"""The list of commands, and the construction of their parsers.

A command is an entry here and one or two functions of its module, named for it: ``branch create``
is run by ``run_branch_create``, whose docstring is the description in the help, and
``add_branch_create`` declares the arguments that it has alone. A module is loaded only when one of
its commands is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeAlias

from omnigraph.cli.flags import Capability, add_global_flags
from omnigraph.cli.options import add_json, add_uri
from omnigraph.cli.parser_tree import extra_forms
from omnigraph.records import dataclass

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


ANY, SERVED = Capability.ANY, Capability.SERVED
DIRECT, CONTROL, LOCAL = Capability.DIRECT, Capability.CONTROL, Capability.LOCAL

_MODULES = {
    "schema": "init snapshot schema",
    "load": "load ingest export",
    "query": "query mutate explain alias",
    "branch": "branch tag revert cherry-pick",
    "history": "commit diff changes blame",
    "lint": "lint fmt",
    "maintenance": "index optimize repair cleanup doctor verify",
    "backup": "backup restore clone",
    "configuration": "profile login logout graphs version",
}
"""Modules of several commands; any other command has a module of its own name."""

_FAMILIES = {
    "graphs": "show the graphs of a server",
    "branch": "create, list, delete and merge branches",
    "commit": "show commits",
    "changes": "read the changes of a branch, commit by commit",
    "tag": "name commits",
    "blob": "read and set Blob values",
    "schema": "show, plan and apply schema changes",
    "index": "show and build indexes",
    "policy": "check, test and explain policies",
    "cluster": "declare graphs, queries and policies, and apply them",
    "queries": "list and check the applied stored queries of a cluster",
    "profile": "show the profiles of the configuration",
    "warm": "start and stop the warm process",
}


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, or one form of a family such as ``branch create``."""

    name: str
    capability: Capability
    takes: str
    """Its shared arguments: ``URI`` or ``--uri``, ``--json``, ``--as``, ``--cluster``, ``--server``
    (for a command on storage that a server runs too, or one that is not about data)."""
    text: str

    @property
    def family(self) -> str:
        return self.name.partition(" ")[0]

    def function(self, verb: str) -> Any:
        """The function of its module that adds its arguments, or runs it."""
        owners = (module for module, names in _MODULES.items() if self.family in names.split())
        module = import_module(f"omnigraph.cli.commands.{next(owners, self.family)}")
        return getattr(module, f"{verb}_{self.name.replace(' ', '_').replace('-', '_')}", None)


_HIDDEN = "ingest"
_LABELLED_IN_FULL = ("schema", "backup", "queries")
"""Families whose messages name the form, since their forms differ in what they address."""

_ENTRIES = (
    ("init", DIRECT, "", "create a graph"),
    ("load", ANY, "URI --json --as", "load files into the graph"),
    (_HIDDEN, ANY, "URI --json --as", "load a file into a branch (deprecated form of load)"),
    ("query", ANY, "", "run a query that reads"),
    ("mutate", ANY, "--json --as", "run a query that changes the graph"),
    ("alias", LOCAL, "", "run a stored query under its short name"),
    ("graphs list", SERVED, "--json", "list the graphs of a server"),
    ("snapshot", ANY, "URI --json", "show the tables of a branch, their versions and row counts"),
    ("export", ANY, "URI", "export the graph"),
    ("branch create", ANY, "--uri --json --as", "create a branch without copying data"),
    ("branch list", ANY, "--uri --json", "list branches"),
    ("branch delete", ANY, "--uri --json --as", "delete a branch"),
    ("branch merge", ANY, "--uri --json --as", "merge a branch into another"),
    ("commit list", ANY, "URI --json", "list commits, newest first"),
    ("commit show", ANY, "--uri --json", "show one commit"),
    ("commit changes", ANY, "--uri --json", "show what a commit changed"),
    ("log", ANY, "URI --json", "draw the commit history"),
    ("diff", ANY, "--uri --json", "show the difference between two states"),
    ("changes poll", ANY, "--uri", "show the next changes of a branch"),
    ("changes baseline", ANY, "--uri --json", "export a branch with the cursor for later changes"),
    ("revert", ANY, "--uri --json --as", "undo a commit with a new one"),
    ("cherry-pick", ANY, "--uri --json --as", "apply one commit to a branch"),
    ("blame", ANY, "--uri --json", "show which commit last changed a row"),
    ("tag create", ANY, "--uri --json --as", "tag a commit; cleanup keeps tagged commits"),
    ("tag list", ANY, "--uri --json", "list tags"),
    ("tag delete", ANY, "--uri --json --as", "delete a tag; its commit stays"),
    ("blob get", ANY, "--uri", "write the bytes of a Blob"),
    ("blob stat", ANY, "--uri --json", "show the size and location of a Blob"),
    ("blob put", ANY, "--uri --json --as", "set a Blob"),
    ("blob delete", ANY, "--uri --json --as", "set a Blob to null"),
    ("schema show", ANY, "URI --json", "print the schema"),
    ("schema plan", DIRECT, "URI --json --server", "show the steps to another schema"),
    ("schema apply", ANY, "URI --json --as", "change the schema"),
    ("lint", DIRECT, "URI --cluster", "check queries against a schema, or a schema alone"),
    ("fmt", LOCAL, "", "format .pg and .gq files"),
    ("explain", ANY, "", "show the plan of a query"),
    ("index status", DIRECT, "URI --json --cluster --server", "show the indexes of a branch"),
    ("index ensure", DIRECT, "URI --json --as --cluster --server", "build missing indexes"),
    ("index rebuild", DIRECT, "--uri --json --as --cluster --server", "rebuild indexes"),
    ("optimize", DIRECT, "URI --json --cluster --server", "compact tables and complete indexes"),
    (
        "repair",
        DIRECT,
        "URI --json --cluster --server",
        "find and adopt table versions written outside of OmniGraph",
    ),
    ("cleanup", DIRECT, "URI --json --cluster --server", "delete old versions"),
    (
        "doctor",
        DIRECT,
        "URI --json --cluster",
        "report the health of a graph and which commands to run",
    ),
    (
        "verify",
        DIRECT,
        "URI --json --cluster --server",
        "check the integrity of a graph, down to its bytes",
    ),
    ("backup", DIRECT, "URI --json", "copy a graph to a backup, or list its points"),
    (
        "backup prune",
        DIRECT,
        "--json",
        "delete points of a backup, and files that no other point uses",
    ),
    ("restore", DIRECT, "--json", "create a graph from a backup"),
    ("clone", DIRECT, "--json", "make an independent copy of a graph"),
    ("cluster init", CONTROL, "--json", "create the files of a first cluster"),
    ("cluster validate", CONTROL, "--json", "check cluster.yaml and the files that it names"),
    ("cluster import", CONTROL, "--json", "write the first ledger"),
    ("cluster plan", CONTROL, "--json", "show what an apply would do"),
    ("cluster apply", CONTROL, "--json --as --server", "make the cluster what is declared"),
    ("cluster deployments", CONTROL, "--json --server", "list applies by servers, or show one"),
    ("cluster approve", CONTROL, "--json --as", "approve a change that deletes data"),
    ("cluster status", CONTROL, "--json", "show the ledger, the lock and interrupted operations"),
    ("cluster refresh", CONTROL, "--json", "record what the graphs are like now"),
    ("cluster drift", CONTROL, "--json", "show what changed outside of the ledger"),
    ("cluster force-unlock", CONTROL, "--json", "remove the lock of a dead process"),
    ("queries list", CONTROL, "--json --cluster", "list the applied stored queries"),
    ("queries validate", CONTROL, "--json --cluster", "check the applied stored queries"),
    ("policy validate", CONTROL, "--cluster", "check a policy bundle"),
    ("policy test", CONTROL, "--cluster --server", "run the test cases of a policy bundle"),
    ("policy explain", CONTROL, "--cluster --server", "show which rule decides"),
    ("embed", LOCAL, "--json", "add vectors to the rows of a seed file"),
    ("profile list", LOCAL, "--json", "list profiles"),
    ("profile show", LOCAL, "--json", "show what a profile addresses"),
    ("login", LOCAL, "--json", "store the token of a server"),
    ("logout", LOCAL, "--json", "delete the token of a server"),
    ("serve", DIRECT, "URI", "serve a graph over HTTP"),
    ("mcp", DIRECT, "URI --as", "serve a graph to an agent, over standard input and output"),
    ("shell", ANY, "URI --as", "open an interactive shell on a graph"),
    ("warm start", LOCAL, "--json", "start a process that runs commands on local graphs faster"),
    ("warm status", LOCAL, "--json", "show whether the warm process runs"),
    ("warm stop", LOCAL, "--json", "end the warm process, after the commands that run"),
    ("completion", LOCAL, "", "print the Tab completion script of a shell"),
    ("version", LOCAL, "", "show the version and the storage format"),
)
COMMANDS = tuple(CommandEntry(*entry) for entry in _ENTRIES)
"""Every command, in the order of the help."""


def declare(commands: Commands, entries: Iterable[CommandEntry]) -> None:
    """Build the parsers of some commands."""
    families: dict[str, Commands] = {}
    for entry in entries:
        family, _, form = entry.name.partition(" ")
        if family in _FAMILIES and family not in families:
            text = _FAMILIES[family]
            group = commands.add_parser(family, help=text, description=_sentence(text))
            families[family] = group.add_subparsers(
                title="commands", metavar="COMMAND", required=True
            )
        if form and family not in families:
            parent = commands.choices[family]
            parser = type(parent)(prog=f"{parent.prog} {form}")
            extra_forms(parent)[form] = (parser, entry.text)
        else:
            shown: dict[str, Any] = {} if family == _HIDDEN else {"help": entry.text}
            parser = families.get(family, commands).add_parser(form or family, **shown)
        _fill(parser, entry)


def _fill(parser: argparse.ArgumentParser, entry: CommandEntry) -> None:
    run, add = entry.function("run"), entry.function("add")
    takes = entry.takes.split()
    has_uri = "URI" in takes or "--uri" in takes
    parser.description = " ".join((run.__doc__ or _sentence(entry.text)).split())
    parser.set_defaults(
        run=run,
        command=entry.name,
        label=entry.name if entry.family in _LABELLED_IN_FULL else entry.family,
        capability=entry.capability,
        writes="--as" in takes,
        in_cluster="--cluster" in takes,
        through_server="--server" in takes,
        # A command on storage without a URI names its graph by another argument.
        names_graph=entry.capability is DIRECT and not has_uri,
    )
    add_global_flags(parser)
    if has_uri:
        add_uri(parser, positional="URI" in takes)
    if "--json" in takes and entry.family in _FAMILIES:
        add_json(parser)
    if add is not None:
        add(parser)
    if "--json" in takes and entry.family not in _FAMILIES:
        add_json(parser)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
