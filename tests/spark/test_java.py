"""Java is found where the user says, on the search path, or in a usual place; 17 or newer."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import SparkUnavailable
from omnigraph.spark.session.java import find_java


@pytest.fixture(autouse=True)
def _empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def java(home: Path, version: str, *, reports: str = "release") -> str:
    """A directory that looks like an installed Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = (
        f"echo 'openjdk version \"{version}\" 2025-04-15' >&2" if reports == "program" else "exit 1"
    )
    program.write_text(f"#!/bin/sh\n{said}\n", "utf-8")
    program.chmod(0o755)
    if reports == "release":
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', "utf-8")
    return str(home)


def usual(folder: Path) -> tuple[str, ...]:
    return (f"{folder}/*",)


def test_what_the_user_names_comes_first(tmp_path):
    named = java(tmp_path / "named", "21.0.2")
    java(tmp_path / "places" / "other", "17.0.1")
    (tmp_path / "bin" / "java").symlink_to(java(tmp_path / "path", "17.0.9") + "/bin/java")
    assert find_java(named, usual(tmp_path / "places")).version == "21.0.2"


def test_the_search_path_comes_before_usual_places(tmp_path):
    java(tmp_path / "places" / "other", "17.0.1")
    (tmp_path / "bin" / "java").symlink_to(java(tmp_path / "path", "21.0.9") + "/bin/java")
    actual = find_java("", usual(tmp_path / "places"))
    assert (actual.home, actual.version) == (tmp_path / "path", "21.0.9")


def test_of_usual_places_the_oldest_that_will_do_is_taken(tmp_path):
    for version in ("11.0.2", "25.0.1", "17.0.4", "21.0.1"):
        java(tmp_path / "places" / version, version)
    assert find_java("", usual(tmp_path / "places")).version == "17.0.4"


def test_one_that_is_too_old_is_passed_over(tmp_path):
    old = java(tmp_path / "named", "1.8.0_312")
    java(tmp_path / "places" / "new", "17.0.1")
    assert find_java(old, usual(tmp_path / "places")).version == "17.0.1"


def test_the_program_is_asked_when_no_file_tells_its_version(tmp_path):
    named = java(tmp_path / "named", "17.0.7", reports="program")
    assert find_java(named, ()).version == "17.0.7"


def test_a_directory_without_a_program_that_runs_is_passed_over(tmp_path):
    broken = java(tmp_path / "broken", "17.0.7", reports="nothing")
    (tmp_path / "empty").mkdir()
    good = java(tmp_path / "places" / "good", "17.0.1")
    for named in (broken, str(tmp_path / "empty"), str(tmp_path / "missing")):
        assert str(find_java(named, usual(tmp_path / "places")).home) == good


def test_no_java_is_one_clear_line():
    with pytest.raises(SparkUnavailable) as caught:
        find_java("", ())
    assert caught.value.message == "Java is not installed"
    assert caught.value.hint == "install Java 17 or newer, or set JAVA_HOME"


def test_only_old_ones_are_one_clear_line(tmp_path):
    java(tmp_path / "places" / "a", "1.8.0_312")
    java(tmp_path / "places" / "b", "11.0.2")
    with pytest.raises(SparkUnavailable) as caught:
        find_java("", usual(tmp_path / "places"))
    assert caught.value.message == "Spark needs Java 17 or newer, and the newest here is 11.0.2"
