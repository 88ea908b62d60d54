"""The documentation is complete, and everything in it runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph import Source, compile_query, compile_schema, errors
from omnigraph.cli.parser import build_parser
from omnigraph.cli.parser_tree import leaves
from omnigraph.settings import Settings
from tests.pages import PAGES, ROOT, blocks, query_names, run, run_inside, steps
from tests.sampling import rotating
from tools import api_page, commands_page

DOCS = "\n".join(page.read_text("utf-8") for page in PAGES)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# -- completeness ---------------------------------------------------------------------------------


def test_every_module_that_a_page_names_exists():
    folders = ("src", "tests", "bench", "tools", "demo")
    modules = [f"/{path.as_posix()}" for top in folders for path in (ROOT / top).rglob("*.py")]
    missing = {
        f"{named(page)}: {name}"
        for page in PAGES
        for name in re.findall(r"`([\w./-]+\.py)`", page.read_text("utf-8"))
        if not any(module.endswith(f"/{name}") for module in modules)
    }
    assert missing == set()


def error_codes() -> list[str]:
    return [
        value.code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.OmniGraphError)
    ]


@pytest.mark.parametrize("code", error_codes())
def test_every_error_code_has_one_row(code):
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert len(re.findall(rf"^\| `{code}` \|", page, re.MULTILINE)) == 1


def test_the_page_of_commands_is_what_the_parsers_say():
    """Every command and every option stands there: the page is written by `make docs`."""
    assert (ROOT / "docs" / "commands.md").read_text("utf-8") == commands_page.page()


def test_the_page_of_the_api_is_what_signatures_and_docstrings_say():
    """Written by `make docs`."""
    assert (ROOT / "docs" / "api.md").read_text("utf-8") == api_page.page()


def test_every_command_and_option_has_a_text():
    for parser in leaves(build_parser()):
        assert parser.description or parser.prog == "omnigraph help", parser.prog
        assert all(action.help for action in parser._actions), parser.prog


@pytest.mark.parametrize("variable", Settings.variables())
def test_every_environment_variable_is_documented(variable):
    assert f"`{variable}`" in (ROOT / "docs" / "configuration.md").read_text("utf-8")


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_modes_of_a_load_are_described_once():
    rows = tuple(f"| `{mode}` |" for mode in ("merge", "append", "overwrite"))
    assert [line.startswith(rows) for line in DOCS.splitlines()].count(True) == len(rows)


def test_the_pages_name_no_place_of_a_developer():
    assert re.findall(r"/(?:work|home|root|Users)/\S*", DOCS) == []


# -- examples -------------------------------------------------------------------------------------

LANGUAGE_PAGES = [page for page in PAGES if any(b.language in {"pg", "gq"} for b in blocks(page))]
CONSOLE_PAGES = [page for page in PAGES if any(b.language == "console" for b in blocks(page))]


def test_the_pages_have_examples():
    assert {"README.md", "docs/schema.md", "docs/queries.md"} <= {*map(named, LANGUAGE_PAGES)}
    assert {"README.md", "docs/quickstart.md", "docs/cli.md"} <= {*map(named, CONSOLE_PAGES)}


@pytest.mark.parametrize("page", LANGUAGE_PAGES, ids=named)
def test_every_example_compiles(page):
    """A query block is compiled against the schema block before it on the page."""
    catalog = None
    for block in blocks(page):
        source = Source(f"{named(page)}:{block.line}", block.text)
        if block.language == "pg":
            catalog = compile_schema(source)
        elif block.language == "gq":
            assert catalog is not None, f"{source.name}: no schema before the query"
            names = query_names(source.text)
            assert names
            for name in names:
                compile_query(catalog, source, name)


@pytest.mark.parametrize(
    ("page", "how"),
    [
        *((page, run_inside) for page in CONSOLE_PAGES),
        *rotating([(page, run) for page in CONSOLE_PAGES], 1, "console pages"),
    ],
    ids=lambda value: named(value) if isinstance(value, Path) else value.__name__,
)
def test_every_session_prints_what_the_page_shows(page, how, tmp_path):
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text, "utf-8")
        if block.language != "console":
            continue
        for step in steps(block):
            assert how(step.command, tmp_path) == step.output, f"{named(page)}:{step.line}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_python_example_runs(page):
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, f"{named(page)}:{block.line}", "exec"), {})
