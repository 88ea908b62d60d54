"""The source tree keeps its rules, and each rule can fail."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import omnigraph
from tests import architecture_rules as rules
from tests.architecture_rules import Module

SRC = Path(__file__).parent.parent / "src"
MODULES = rules.modules_under(SRC)
# One process parses the package once.
pytestmark = pytest.mark.xdist_group("architecture")


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule):
    broken = [f"{module.name}: {text}" for module in MODULES for text in rule(module)]
    assert broken == []


def test_the_walk_finds_the_package():
    names = {module.name for module in MODULES}
    assert {"omnigraph", "omnigraph.errors", "omnigraph.cli", "omnigraph.lang.lexer"} <= names


def test_every_room_is_known():
    """A new directory must be placed in a group before it can be imported."""
    existing = {room for group in rules.GROUPS for room in group}
    rooms = {path.name for path in (SRC / "omnigraph").iterdir() if (path / "__init__.py").exists()}
    assert rooms <= existing


def test_the_drawing_of_the_page_has_the_groups():
    page = (SRC.parent / "docs" / "architecture.md").read_text("utf-8")
    rows = page.partition("```\n")[2].partition("```")[0].splitlines()
    drawn = [set(re.findall(r"[a-z_]+(?=\s|$)", re.split(r"\s{4,}", row)[0])) for row in rows]
    there = {rules.room_of(module.name) for module in MODULES}
    assert drawn == [group & there for group in rules.GROUPS]


def broken_rules(name: str, text: str, *, is_package: bool = False) -> set[str]:
    module = Module(name, f'"""A module."""\n{text}\n', is_package)
    return {rule.__name__ for rule in rules.RULES if list(rule(module))}


LAYERING = {"layering"}
LANCE = {"lance_only_in_storage"}
INLINE = {"lance_commits_only_inline"}
PYSPARK = {"pyspark_only_in_spark_and_lazily"}
WEB = {"web_framework_only_in_server"}
ENVIRONMENT = {"environment_only_in_settings"}
TERMINAL = {"terminal_only_in_cli"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # groups, top to bottom
        ("omnigraph.lang.query.checker", "from omnigraph.plan import Plan", LAYERING),
        ("omnigraph.lang.query.checker", "import omnigraph.plan.nodes", LAYERING),
        ("omnigraph.lang.query.checker", "from ...plan import nodes", LAYERING),
        ("omnigraph.lang.query", "def f():\n    from omnigraph import plan", LAYERING),
        (
            "omnigraph.lang.types",
            "import importlib\nimportlib.import_module('omnigraph.plan')",
            LAYERING,
        ),
        ("omnigraph.plan.lowering", "from omnigraph.storage.tables.store import Table", LAYERING),
        ("omnigraph.storage.tables.store", "from omnigraph.plan import Plan", LAYERING),
        ("omnigraph.commit.publisher", "from omnigraph.write import pending", LAYERING),
        ("omnigraph.read.scan", "from omnigraph.cli import terminal", LAYERING),
        ("omnigraph.errors", "from omnigraph.lang import types", LAYERING),
        ("omnigraph.lang.diagnostics", "from omnigraph.errors import NotFound", LAYERING),
        # neighbours in a group
        ("omnigraph.read.scan", "from omnigraph.write import pending", LAYERING),
        ("omnigraph.write.pending", "from omnigraph.merge import diff", LAYERING),
        ("omnigraph.write.pending", "from omnigraph.spark import session", LAYERING),
        ("omnigraph.policy.cedar", "from omnigraph.server import app", LAYERING),
        # the surface and the settings
        ("omnigraph.read.scan", "from omnigraph import Graph", LAYERING),
        ("omnigraph.read.scan", "from omnigraph.settings import Settings", LAYERING),
        ("omnigraph.settings", "from omnigraph.lang import types", LAYERING),
        ("omnigraph.api.graph", "from omnigraph.cli import main", LAYERING),
        # libraries
        ("omnigraph.read.scan", "import lance", LANCE),
        ("omnigraph.read.scan", "import lance.fragment as fragment", LANCE),
        ("omnigraph.read.scan", "from lance import dataset", LANCE),
        ("omnigraph.spark.load.run", "def f():\n    import lance", LANCE),
        ("omnigraph.read.scan", "lance = __import__('lance')", LANCE),
        (
            "omnigraph.read.scan",
            "from importlib import import_module\nimport_module('lance.x')",
            LANCE,
        ),
        # what Lance commits by itself
        ("omnigraph.storage.tables.store", "import lance\nlance.write_dataset(rows, uri)", INLINE),
        ("omnigraph.storage.tables.store", "import lance as l\nwrite = l.write_dataset", INLINE),
        (
            "omnigraph.storage.tables.store",
            "from lance import write_dataset as w\nw(rows, uri)",
            INLINE,
        ),
        ("omnigraph.storage.tables.store", "import lance\nlance.dataset(u).delete('x')", INLINE),
        (
            "omnigraph.storage.tables.store",
            "import lance\nd = lance.dataset(u)\nd.update({})",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.store",
            "from lance import dataset as o\no(u).insert(r)",
            INLINE,
        ),
        ("omnigraph.storage.tables.store", "def f(d: LanceDataset):\n    d.restore()", INLINE),
        (
            "omnigraph.storage.tables.store",
            "def f(d: 'LanceDataset | None'):\n    d.merge(x)",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.store",
            "class A:\n    d: LanceDataset\nA().d.restore()",
            INLINE,
        ),
        ("omnigraph.storage.tables.store", "a = b = table.dataset\na.delete('x')", INLINE),
        ("omnigraph.storage.tables.store", "a = table.dataset\nb = a\nb.delete('x')", INLINE),
        ("omnigraph.storage.tables.store", "self.h = datasets.open(ref)\nself.h.restore()", INLINE),
        ("omnigraph.storage.tables.store", "self._datasets.shared(ref, 1).delete('x')", INLINE),
        ("omnigraph.commit.branches", "store.datasets.open(ref).create_branch('b')", INLINE),
        ("omnigraph.commit.branches", "store.datasets.open(ref).branches.delete('b')", INLINE),
        ("omnigraph.storage.tables.columns", "table.dataset.tags.create('t', 1)", INLINE),
        ("omnigraph.storage.tables.columns", "table.dataset.tags.delete('t')", INLINE),
        (
            "omnigraph.storage.tables.columns",
            "d = t.dataset.checkout_version(3)\nd.delete('x')",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.columns",
            "if (d := table.dataset):\n    d.delete('x')",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.store",
            "d.merge_insert('id').use_index(False).execute(r)",
            INLINE,
        ),
        ("omnigraph.storage.tables.store", "u = d.merge_insert('id')\nu.execute(r)", INLINE),
        ("omnigraph.storage.tables.store", "d.optimize.compact_files()", INLINE),
        ("omnigraph.storage.tables.store", "d.create_scalar_index('id', 'BTREE')", INLINE),
        ("omnigraph.storage.tables.store", "d.cleanup_old_versions()", INLINE),
        ("omnigraph.storage.tables.store", "d.update_config({})", INLINE),
        ("omnigraph.storage.tables.store", "table.dataset.drop_columns(['x'])", INLINE),
        (
            "omnigraph.storage.tables.columns",
            "from lance import LanceDataset as D\nD.commit(d, t)",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.columns",
            "import lance\nlance.LanceDataset.commit(d, t)",
            INLINE,
        ),
        (
            "omnigraph.storage.tables.store",
            "from lance.optimize import Compaction\nCompaction.commit(d, results)",
            INLINE,
        ),
        ("omnigraph.write.load", "def f():\n    import pyspark", PYSPARK),
        ("omnigraph.spark.load.run", "import pyspark.sql", PYSPARK),
        ("omnigraph.spark.load.run", "class A:\n    from pyspark import sql", PYSPARK),
        (
            "omnigraph.spark.load.run",
            "try:\n    import pyspark\nexcept ImportError:\n    pass",
            PYSPARK,
        ),
        ("omnigraph.client.http", "from starlette.requests import Request", WEB),
        # the environment and the terminal
        ("omnigraph.read.scan", "import os\nx = os.environ.get('A')", ENVIRONMENT),
        ("omnigraph.read.scan", "import os as o\nx = o.getenv('A')", ENVIRONMENT),
        ("omnigraph.cli.x", "from os import environ", ENVIRONMENT),
        ("omnigraph.cli.x", "import os\nos.putenv('A', 'b')", ENVIRONMENT),
        ("omnigraph.read.scan", "print('x')", TERMINAL),
        ("omnigraph.read.scan", "import sys\nsys.stdout.write('x')", TERMINAL),
        ("omnigraph.read.scan", "from sys import stderr", TERMINAL),
        ("omnigraph.read.scan", "import argparse", TERMINAL),
        # shape
        ("omnigraph.read.scan", "x = 1\n" * 600, {"fits_in_a_head"}),
        ("omnigraph.read.utils", "", {"has_a_descriptive_name"}),
        ("omnigraph.read._helpers.x", "", {"has_a_descriptive_name"}),
    ],
)
def test_a_bad_module_is_found(name, text, expected):
    assert broken_rules(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("omnigraph.cli.commands.lint", "from omnigraph.lang.schema.compile import compile_schema"),
        ("omnigraph.cli.about", "from omnigraph import __version__"),
        ("omnigraph.cli.x", "from omnigraph.settings import Settings"),
        ("omnigraph.plan.lowering", "from omnigraph.lang.query import ast"),
        ("omnigraph.spark.load.run", "from omnigraph.write import pending"),
        ("omnigraph.merge.diff", "from omnigraph.write import pending"),
        ("omnigraph.write.pending", "from omnigraph.read import scan"),
        ("omnigraph.api.graph", "from omnigraph.settings import Settings"),
        (
            "omnigraph.storage.tables.store",
            "import lance\nfrom lance.fragment import write_fragments",
        ),
        ("omnigraph.storage.tables.inline", "import lance\nlance.dataset(u).delete('x')"),
        ("omnigraph.storage.tables.inline", "d.merge_insert('id').execute(r)"),
        (
            "omnigraph.storage.tables.inline",
            "from lance import LanceDataset\nLanceDataset.commit(d, t)",
        ),
        (
            "omnigraph.storage.tables.store",
            "from lance import LanceDataset\nLanceDataset.commit(d, t)",
        ),
        ("omnigraph.storage.tables.store", "d.merge_insert('id').execute_uncommitted(r)"),
        ("omnigraph.storage.tables.store", "d.create_index_uncommitted('id', 'BTREE')"),
        ("omnigraph.storage.tables.store", "known = {}\nknown.update(dataset.schema.metadata)"),
        (
            "omnigraph.storage.tables.store",
            "part = table.dataset.get_fragment(1)\npart.delete('x')",
        ),
        ("omnigraph.storage.tables.store", "rows = table.read()\nrows.drop_columns(['x'])"),
        ("omnigraph.storage.objects.store", "self._store.delete(path)\nnames.insert(0, path)"),
        ("omnigraph.commit.rollback", "store.inline.restore(ref, 2, 1)"),
        ("omnigraph.commit.branches", "store.inline.create_branch(ref, 1, 'b')"),
        ("omnigraph.commit.branches", "store.objects.create(path, '')\nstore.sidecars.delete(i)"),
        ("omnigraph.cli.x", "cursor.execute('select 1')"),
        ("omnigraph.spark.load.run", "def f():\n    import pyspark"),
        (
            "omnigraph.spark.load.run",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark",
        ),
        ("omnigraph.server.app", "import starlette"),
        ("omnigraph.settings", "import os\nx = os.environ"),
        ("omnigraph.cli.x", "import argparse, sys\nprint('x', file=sys.stderr)"),
        ("omnigraph.read.scan", "import lancelot, os.path"),
    ],
)
def test_a_good_module_passes(name, text):
    assert broken_rules(name, text) == set()


def test_a_relative_import_in_a_package_is_resolved():
    assert broken_rules("omnigraph.lang.query", "from ..plan import x", is_package=True) == set()
    assert (
        broken_rules("omnigraph.lang.query", "from ...plan import x", is_package=True) == LAYERING
    )
    assert broken_rules("omnigraph.lang", "from ..plan import x", is_package=True) == LAYERING


def test_a_module_without_docstring_is_found():
    assert list(rules.says_what_it_is(Module("omnigraph.read.scan", "x = 1"))) == ["no docstring"]


def test_the_surface_loads_names_from_where_the_type_checker_finds_them():
    surface = next(module for module in MODULES if module.name == "omnigraph")
    typed = {
        alias.name: (node.module or "").removeprefix("omnigraph.")
        for node in surface.nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("omnigraph.")
        for alias in node.names
    }
    assert typed == omnigraph._MODULES
