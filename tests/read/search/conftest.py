"""An empty table of documents."""

from __future__ import annotations

import pytest

from tests.read.search.world import Docs


@pytest.fixture
def docs(tmp_path):
    return Docs(tmp_path)
