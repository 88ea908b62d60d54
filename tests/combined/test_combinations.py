"""Random histories in which every feature meets every other, against a model of plain dicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.combined.world import World
from tests.sampling import rotating

STEPS = 30


@pytest.mark.parametrize("seed", rotating(range(60), 2, "combinations"))
def test_a_graph_goes_through_everything_as_its_model_does(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    try:
        for _ in range(STEPS):
            world.step()
        world.verify()
    except BaseException:
        print(*world.log, sep="\n")
        raise
    finally:
        world.graph.close()
