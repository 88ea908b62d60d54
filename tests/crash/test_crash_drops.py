"""What a hard drop takes away is gone from the disk, whoever dies while it does so."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.maintain.verify import ProblemCode
from tests.crash import operations
from tests.crash.harness import Harness, Prepared

pytestmark = pytest.mark.rotates(3)

MARKS = (b"0ne-that-nobody-may-find", b"an0ther-one")
LATE = (
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
    Failpoint.SCHEMA_BEFORE_CLEANUP,
    Failpoint.REMOVAL_AFTER_INTENT,
    Failpoint.REMOVAL_AFTER_VERSIONS,
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Two types with values that a search of all files finds; one of them is indexed."""
    root = tmp_path_factory.mktemp("drops") / "graph"
    secret, name = (mark.decode() for mark in MARKS)
    with Graph.init(root, operations.SECRET, durability="os") as graph:
        for person in ("Ada", "Bob"):
            data = {"name": person, "age": 1, "secret": f"{secret} {person}"}
            graph.load([{"type": "Person", "data": data}])
        graph.load([{"type": "Company", "data": {"name": name}}])
        graph.load([{"edge": "WorksAt", "from": "Ada", "to": name}])
        graph.indexes.ensure()
        graph.branches.create("side")
        graph.load([{"type": "Company", "data": {"name": f"{name} too"}}], branch="side")
        graph.merge("side", "main")
        graph.branches.delete("side")
    return Prepared.of(root, root.parent / "as-it-was")


def left_in(root: Path) -> set[bytes]:
    """The marks that some file below a root still has."""
    files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    return {mark for mark in MARKS if any(mark in content for content in files)}


def is_applied(root: Path) -> bool:
    with Graph.open(root, "r") as graph:
        return "Company" not in graph.catalog.node_types


def check(root: Path) -> None:
    """All of the data is there under the old schema, or nothing of it under the new one."""
    with Graph.open(root) as graph:
        assert graph.snapshot().count("Person") == 2
    assert left_in(root) == (set() if is_applied(root) else set(MARKS))
    assert list((root / "__recovery").glob("*.cleanup")) == []
    assert verify_graph(str(root)).problems == ()
    # Neither do names that come back bring anything back.
    with Graph.open(root) as graph:
        if "Company" not in graph.catalog.node_types:
            graph.schema.apply(operations.SCHEMA)
            assert graph.snapshot().count("Company") == 0


def test_without_a_crash_nothing_is_left(prepared: Prepared, crash: Harness) -> None:
    prepared.put_back()
    crash.crossings(operations.drop_for_good, prepared.root)
    assert is_applied(prepared.root)
    assert left_in(prepared.root) == set()
    check(prepared.root)


@pytest.mark.parametrize("point", LATE)
def test_verify_names_an_unfinished_hard_drop_and_the_next_open_ends_it(
    prepared: Prepared, crash: Harness, point: Failpoint
) -> None:
    prepared.put_back()
    assert crash.kill_at_failpoint(operations.drop_for_good, prepared.root, point).killed
    assert is_applied(prepared.root)
    assert left_in(prepared.root) == set(MARKS)
    actual = verify_graph(str(prepared.root)).problems
    assert {item.code for item in actual} == {ProblemCode.CLEANUP_UNFINISHED}
    assert all("open the graph read-write" in (item.hint or "") for item in actual)
    check(prepared.root)


@pytest.mark.parametrize("how", ["cleanup", "repair"])
def test_who_lives_on_ends_the_hard_drop_of_a_dead_process(
    prepared: Prepared, crash: Harness, how: str
) -> None:
    prepared.put_back()
    with Graph.open(prepared.root) as graph:
        point = Failpoint.SCHEMA_BEFORE_CLEANUP
        assert crash.kill_at_failpoint(operations.drop_for_good, prepared.root, point).killed
        graph.refresh()
        if how == "cleanup":
            graph.maintenance.cleanup(keep_versions=100)
        else:
            graph.maintenance.repair()
        assert left_in(prepared.root) == set()
    check(prepared.root)


@pytest.mark.slow
def test_whoever_dies_at_a_boundary_leaves_all_of_the_data_or_nothing(
    prepared: Prepared, crash: Harness
) -> None:
    for _ in crash.walk_failpoints(operations.drop_for_good, prepared):
        check(prepared.root)


@pytest.mark.slow
def test_whoever_dies_at_any_step_leaves_all_of_the_data_or_nothing(
    prepared: Prepared, crash: Harness
) -> None:
    for _ in crash.walk_steps(operations.drop_for_good, prepared):
        check(prepared.root)
