"""Codes: each is used, each is documented, none means two things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.lang.query.codes import CODES
from omnigraph.lang.schema.codes import SCHEMA_CODES
from omnigraph.lang.schema.lint_codes import LINT_CODES
from tools.codes_page import page

ROOT = Path(__file__).parents[2]
REGISTRIES = {"query/codes.py", "schema/codes.py", "schema/lint_codes.py"}
# Reserved: the changes that they name are steps of a plan today.
RESERVED = {"OG-DS-101", "OG-DS-102", "OG-DS-103", "OG-DS-104", "OG-DS-105"}


def sources() -> str:
    folders = (ROOT / "src" / "omnigraph" / name for name in ("lang", "plan", "evolve"))
    return "\n".join(
        path.read_text("utf-8")
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if "/".join(path.parts[-2:]) not in REGISTRIES
    )


SOURCES = sources()
LINT = {entry.code for entry in LINT_CODES}
ALL = {*CODES, *SCHEMA_CODES, *LINT}


@pytest.mark.parametrize("code", sorted(ALL - RESERVED))
def test_every_registered_code_is_used(code):
    assert f'"{code}"' in SOURCES


def test_every_code_in_the_sources_is_registered():
    written = set(re.findall(r'"((?:[PST]\d{1,3})|[QL]\d{3}|OG-[A-Z]{2}-\d{3}|D2)"', SOURCES))
    assert written - ALL == set()


def test_no_code_stands_in_two_tables():
    assert len(CODES) + len(SCHEMA_CODES) + len(LINT) == len(ALL)


def test_the_page_of_codes_is_up_to_date():
    assert (ROOT / "docs" / "codes.md").read_text("utf-8") == page()
