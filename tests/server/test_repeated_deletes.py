"""A delete takes no idempotency key: a repeated one runs again, whatever its headers say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Client, open_served, serving

KEY = {"Idempotency-Key": "once"}
COLLECTIONS = ["/branches", "/tags"]


@pytest.fixture
def ana(tmp_path: Path) -> Iterator[Client]:
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, tokens={"t-ana": "ana"}) as server,
    ):
        yield server.client("t-ana", "g")


@pytest.mark.parametrize("path", COLLECTIONS)
def test_a_repeated_delete_finds_nothing(ana: Client, path: str) -> None:
    ana.post(path, {"name": "v1"}).ok()
    ana.delete(f"{path}/v1", headers=KEY).ok()
    assert ana.delete(f"{path}/v1", headers=KEY).status == 404


@pytest.mark.parametrize("path", COLLECTIONS)
def test_a_repeated_delete_hits_what_has_the_name_by_then(ana: Client, path: str) -> None:
    for _ in range(2):
        ana.post(path, {"name": "v1"}).ok()
        ana.delete(f"{path}/v1", headers=KEY).ok()
    assert ana.delete(f"{path}/v1").status == 404
