"""Which tests stay together when several processes share a run.

A worker process that needs Spark starts a Java, one that needs S3 a server, one that kills writers
builds their graphs. So all tests that use such a thing run in one process, and all tests of a
module that share one of its fixtures do too. Everything else goes to whoever is free.

The slow tests of a group are many and long, so two processes divide them. Groups come first: at the
end of a run no process should wait for the one that has the longest.
"""

from __future__ import annotations

import zlib

import pytest

SHARED = {
    "spark": ("spark", "engine"),
    "crash": ("crash",),
    "s3": ("s3",),
}
"""By group, the fixtures that put a test into it; the first group that fits counts."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = group_of(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            if item.get_closest_marker("slow") is not None:
                group = f"{group} {zlib.crc32(item.nodeid.encode()) % 2}"
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """The shared groups are the longest, then come those of one module."""
    marker = item.get_closest_marker("xdist_group")
    if marker is None:
        return len(SHARED) + 1
    name = marker.args[0].partition(" ")[0]
    return list(SHARED).index(name) if name in SHARED else len(SHARED)


def group_of(item: pytest.Item) -> str | None:
    if not isinstance(item, pytest.Function):
        return None
    for group, fixtures in SHARED.items():
        if any(name in item.fixturenames for name in fixtures):
            return group
    definitions = item._fixtureinfo.name2fixturedefs.values()
    if any(fixture.scope == "module" for existing in definitions for fixture in existing):
        return item.nodeid.partition("::")[0]
    return None
