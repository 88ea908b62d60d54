"""Identifiers use the terms of ``docs/glossary.md``; retired words do not come back."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture_rules import Module, modules_under

ROOT = Path(__file__).parent.parent
MODULES = modules_under(ROOT / "src")
BESIDE_THE_PACKAGE = ("tests", "bench", "demo", "tools")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.xdist_group("architecture")
_RETIRED = """
    told tell tells telling held settle settled settling place places surroundings around asked
    outline watch crew workforce runner share shares handed goal loading crowd answers turns
    found each such known apart crossed unsure
"""
RETIRED = frozenset(_RETIRED.split())
TERMS = re.compile(r"NotFound|^parse_known_args$|^tell$|^test_")
"""Names that the whole field uses, those of Python, and the sentences that name tests."""
FORMS = {"tells", "settling", "surroundings"}
"""Forms of a word that the glossary lists under another form."""


def words(identifier: str) -> set[str]:
    """The words of an identifier, in lower case.

    >>> sorted(words("HeldTable")), sorted(words("_was_found")), sorted(words("N_SHARES"))
    (['held', 'table'], ['found', 'was'], ['n', 'shares'])
    """
    spelled = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier)
    return {word for word in spelled.lower().split("_") if word}


def identifiers(module: Module) -> Iterator[tuple[str, int]]:
    """The names that a module gives: to itself, classes, functions, parameters, variables."""
    yield module.name.rpartition(".")[2], 0
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def retired(module: Module) -> list[str]:
    return [
        f"{module.name}, line {line}: {name}"
        for name, line in identifiers(module)
        if words(name) & RETIRED and not TERMS.search(name)
    ]


def test_no_retired_word_is_an_identifier():
    assert [line for module in MODULES for line in retired(module)] == []


@pytest.mark.parametrize("directory", BESIDE_THE_PACKAGE)
def test_no_retired_word_is_an_identifier_beside_the_package(directory):
    modules = [
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text("utf-8"))
        for path in sorted((ROOT / directory).rglob("*.py"))
    ]
    assert [line for module in modules for line in retired(module)] == []


def test_no_retired_word_is_an_identifier_in_an_example_of_a_page():
    examples = [
        Module(f"docs.{path.stem}", block)
        for path in sorted((ROOT / "docs").glob("*.md"))
        for block in PYTHON_BLOCK.findall(path.read_text("utf-8"))
    ]
    assert examples
    assert [line for module in examples for line in retired(module)] == []


def test_a_class_name_is_used_once():
    names = Counter(
        node.name for module in MODULES for node in module.nodes if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_retired_words_are_in_the_glossary():
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    section = page.partition("## Retired names")[2].lower()
    assert {word for word in RETIRED - FORMS if f"`{word}`" not in section} == set()


def test_a_retired_word_is_seen():
    text = "class HeldRows:\n    pass\ndef f(place):\n    found = NotFound()\n"
    seen = [line.partition(": ")[2] for line in retired(Module("omnigraph.read.x", text))]
    assert seen == ["HeldRows", "place", "found"]
