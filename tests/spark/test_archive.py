"""The class-data archive: built once by one process, used when there, ignored when damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.spark import SparkConfig
from omnigraph.spark.session.java import NO_ARCHIVE, ArchivePlan, Java, plan_archive
from tests.spark.children import Child, ended

JAVA = Java(Path("/opt/java"), "17.0.15")


def plan(cache: Path | str, wish: str = "auto", version: str = "4.3.0") -> ArchivePlan:
    return plan_archive(str(cache), wish, JAVA, "/opt/spark", version)


def finish(plan: ArchivePlan) -> Path:
    """What the end of Java does."""
    assert plan.building is not None
    assert plan.archive is not None
    plan.building.write_bytes(b"archive")
    plan.building.rename(plan.archive)
    plan.release()
    return plan.archive


def test_the_third_start_builds_it_and_the_fourth_uses_it(tmp_path):
    assert [plan(tmp_path), plan(tmp_path)] == [NO_ARCHIVE, NO_ARCHIVE]
    third = plan(tmp_path)
    assert third.java_options() == [f"-XX:ArchiveClassesAtExit={third.building}"]
    archive = finish(third)
    assert plan(tmp_path) == ArchivePlan(archive)
    assert plan(tmp_path).java_options() == [
        f"-XX:SharedArchiveFile={archive}",
        "-Xshare:auto",
        "-XX:+VerifySharedSpaces",
    ]


def test_the_first_start_builds_it_when_asked(tmp_path):
    assert finish(plan(tmp_path, "build")).exists()
    assert plan(tmp_path, "build").is_used


def test_one_of_several_processes_builds(tmp_path):
    first = plan(tmp_path, "build")
    assert plan(tmp_path, "build") == NO_ARCHIVE
    first.release()
    again = plan(tmp_path, "build")
    assert again.building is not None
    assert again.building != first.building
    again.release()


@pytest.mark.parametrize("wish", ["auto", "build"])
def test_nothing_is_done_without_a_place(wish, tmp_path):
    (tmp_path / "file").write_text("", "utf-8")
    for cache in ("", tmp_path / "file"):
        assert [plan(cache, wish) for _ in range(4)] == [NO_ARCHIVE] * 4


def test_nothing_is_done_when_it_is_off(tmp_path):
    finish(plan(tmp_path, "build"))
    assert plan(tmp_path, "off") == NO_ARCHIVE


def test_another_version_gets_its_own_and_the_old_one_goes(tmp_path):
    old = finish(plan(tmp_path, "build"))
    new = finish(plan(tmp_path, "build", "4.3.1"))
    assert old != new
    assert [old.exists(), new.exists()] == [False, True]


def test_what_was_never_finished_goes_after_a_while(tmp_path):
    dead, young = plan(tmp_path, "build"), tmp_path / "spark" / "young.building"
    assert dead.building is not None
    dead.building.write_bytes(b"half")
    os.utime(dead.building, (1.0, 1.0))
    young.write_bytes(b"half")
    dead.release()
    plan(tmp_path, "build").release()
    assert [dead.building.exists(), young.exists()] == [False, True]


@pytest.mark.slow
def test_java_builds_it_uses_it_and_goes_on_without_a_damaged_one(tmp_path):
    config = SparkConfig("local[1,4]", memory="1g", cache_dir=str(tmp_path), archive="build")
    with Child(config, "close") as child:
        assert child.said["builds_archive"]
        assert ended(child) == (0, "", "")
    (archive,) = (tmp_path / "spark").glob("*.jsa")
    whole = archive.read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes(1 << 20) + whole[middle + (1 << 20) :]
    for content in (damaged, whole[:middle]):
        archive.unlink()
        archive.write_bytes(content)
        with Child(config, "close") as child:
            assert not child.said["builds_archive"]
            assert ended(child) == (0, "", "")
    assert [path.name for path in (tmp_path / "spark").glob("*.building")] == []
