"""The S3 server of the fault tests with every scenario built once on it, and child processes."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator

import pytest

from omnigraph.storage.objects.paths import Root, parse_root
from tests.faults.children import Children
from tests.faults.scenarios import Ready, Scenario
from tests.s3.fixtures import S3


@pytest.fixture(scope="session")
def new_root(s3: S3) -> Callable[[], Root]:
    """Each time an address where nothing is."""

    def root() -> Root:
        return parse_root(f"s3://{s3.bucket}/{uuid.uuid4().hex}/g.omni", s3.options)

    return root


@pytest.fixture(scope="session")
def ready(new_root: Callable[[], Root]) -> Callable[[Scenario], Ready]:
    """A scenario with its graph built; each is built once."""

    @functools.cache
    def get(scenario: Scenario) -> Ready:
        return scenario.ready(new_root())

    return get


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    """Runs operations in child processes."""
    children = Children(tmp_path_factory.mktemp("children"))
    yield children
    children.close()
