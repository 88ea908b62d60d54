"""No hint of the engine reaches the user of a command with Python in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.cli.output.hints import hint_for_options, message_for_options
from omnigraph.cli.parser import build_parser
from omnigraph.cli.parser_tree import actions, leaves
from omnigraph.errors import InputError

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"

PYTHON = re.compile(
    r"\b[a-z_]+=(True|False|None|\d|'|\[|\{)"
    r"|\b\w+\(\)"
    r"|\b(Graph|graph|omnigraph|snapshot)\.[a-z]"
    r"|\b(max_rows|max_memory|max_rejects|max_failures|min_age|keep_versions|older_than|if_commit)\b"
    r"|\b(datetime|timedelta|mapping|dict|DataFrame|pyarrow|Python objects)\b"
    r"|\bpass dest\b"
)
"""Code, parameters and types of Python in a sentence."""

OF_PYTHON = {
    "api/load.py": "a DataFrame is passed in Python only",
    "embed/job/requests.py": "the command line does not fill vectors of a graph",
    "embed/job/splits.py": "the command line does not fill vectors of a graph",
    "remote/async_namespaces.py": "the command line does not use the async client",
    "remote/calls.py": "a command does not use a graph that it has closed",
    "remote/load_bodies.py": "what is neither a path nor stdin is passed in Python only",
    "spark/load/frames.py": "frames are passed in Python only",
    "storage/tables/read_only.py": "a dataset is handed out in Python only",
    "write/conform.py": "tables are passed in Python only",
    "write/load/sources.py": "what is neither a path nor stdin is passed in Python only",
}
"""Modules whose hints with Python words reach no command, and why."""


def _literal(node: ast.AST) -> str:
    """The text of an expression; a value inside of it is shown as ``X``."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(conversion=114):
            return "'X'"
        case ast.FormattedValue(value=ast.Name(id="STREAM")):
            return "-"
        case ast.JoinedStr(values=parts):
            return "".join(map(_literal, parts))
        case ast.IfExp(body=body, orelse=other):
            return f"{_literal(body)} / {_literal(other)}"
        case _:
            return "X"


def _hints() -> Iterator[tuple[str, str]]:
    """Every text of the engine that is passed or assigned as a hint, with its module."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        # The languages have hints about their own texts, and the command line has its own words.
        if name.startswith(("cli/", "lang/query/", "lang/schema/")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for value in _given_as_hint(node):
                yield name, _literal(value)


def _given_as_hint(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.keyword(arg="hint", value=value):
            yield value
        case ast.Assign(targets=[ast.Name(id=str(name))], value=value):
            if name.strip("_").lower().endswith(("hint", "remedy")):
                yield value
        case ast.Call(args=arguments):
            # A report gives the hint as its last argument.
            if arguments and len(arguments) > 2:
                yield arguments[-1]


@pytest.fixture(scope="module")
def hints() -> list[tuple[str, str]]:
    """The hints with Python in them. Looked for once, by the tests and not when they are listed."""
    return sorted({(name, text) for name, text in _hints() if PYTHON.search(text)})


def test_there_are_hints_to_check(hints):
    assert len(hints) > 30


def test_a_hint_with_python_in_it_has_words_for_the_command_line(hints):
    wrong = [f"{module}: {fault}" for module, hint in hints for fault in _faults(module, hint)]
    assert wrong == []


def _faults(module: str, hint: str) -> Iterator[str]:
    """What is wrong with a hint as the user of a command sees it."""
    shown = hint_for_options(hint)
    if PYTHON.search(shown):
        if module not in OF_PYTHON:
            yield shown
        return
    for option in re.findall(r"--[a-z-]+", shown):
        if option not in OPTIONS:
            yield f"{option} of: {shown}"
    for command in re.findall(r"`omnigraph ([a-z]+(?: [a-z]+)?)", shown):
        if command not in COMMANDS and command.split()[0] not in COMMANDS:
            yield shown


def _options() -> Iterator[str]:
    for leaf in leaves(build_parser()):
        for action in actions(leaf):
            yield from action.option_strings


OPTIONS = set(_options())
COMMANDS = {leaf.prog.removeprefix("omnigraph ") for leaf in leaves(build_parser())}


def test_an_exception_is_of_a_module_with_such_a_hint(hints):
    assert {module for module, _ in hints} >= OF_PYTHON.keys()


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("run graph.indexes.rebuild('node:A', 'b')", "run `omnigraph index rebuild node:A b`"),
        ("run graph.maintenance.cleanup(): it is new", "run `omnigraph cleanup`: it is new"),
        ("pass for example types={'-': 'Person'}", "pass for example --type -=Person"),
        (
            "add a limit to the query, or raise max_rows",
            "add a limit to the query, or raise --max-rows",
        ),
        ("pass allow_local_files=True to store", "pass --allow-local-files to store"),
        ("did you mean `min_age`?", "did you mean `min_age`?"),
        (None, None),
    ],
)
def test_options_and_commands_replace_calls(hint, shown):
    assert hint_for_options(hint) == shown


def test_a_message_names_the_option_of_an_argument():
    error = InputError("idempotency_key must be text", details={"argument": "idempotency_key"})
    assert message_for_options(error) == "--idempotency-key must be text"
    assert message_for_options(InputError("max_rows is not a property")) == (
        "max_rows is not a property"
    )
