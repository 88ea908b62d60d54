"""One S3 server per test process for all suites, and a fresh place on it for every test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from omnigraph.storage.objects.paths import Root, parse_root
from tests.s3.proxy import S3Proxy
from tests.s3.server import BUCKET, S3Server, options_for


class S3(NamedTuple):
    """How to reach the server."""

    endpoint: str
    options: dict[str, str]
    bucket: str


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        yield S3(server.endpoint, server.options, BUCKET)
    finally:
        server.stop()


@pytest.fixture
def s3_root(s3: S3) -> Callable[..., Root]:
    """The address of a graph by its name, on the server itself or through another endpoint."""
    location = uuid.uuid4().hex

    def root(name: str, endpoint: str | None = None) -> Root:
        options = options_for(endpoint or s3.endpoint)
        return parse_root(f"s3://{s3.bucket}/{location}/{name}", options)

    return root


@pytest.fixture
def proxy(s3: S3) -> Iterator[S3Proxy]:
    with S3Proxy(int(s3.endpoint.rpartition(":")[2])) as running:
        yield running
