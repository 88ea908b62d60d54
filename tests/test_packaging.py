"""What a fresh machine installs is pinned, and only by names and versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import omnigraph
from tests.command_server import commands_in
from tests.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = [
    line
    for line in (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def plain(requirement: str) -> str:
    """The name in a requirement, as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


def test_the_lock_holds_names_and_versions_only():
    odd = [
        line for line in LOCK if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)
    ]
    assert odd == []


def test_the_lock_is_sorted_and_says_everything_once():
    names = [line.split("==")[0].lower() for line in LOCK]
    assert names == sorted(set(names))


def test_everything_that_is_needed_is_locked():
    wanted = {
        plain(requirement)
        for group in (
            PROJECT["project"]["dependencies"],
            PROJECT["project"]["optional-dependencies"]["dev"],
            PROJECT["build-system"]["requires"],
        )
        for requirement in group
    }
    assert wanted - {plain(line) for line in LOCK} == set()


def test_the_environment_is_the_locked_one():
    wrong = [line for line in LOCK if version(line.split("==")[0]) != line.split("==")[1]]
    assert wrong == []


def test_the_command_is_installed_with_the_version_of_the_package():
    assert version("omnigraph") == omnigraph.__version__
    (script,) = entry_points(group="console_scripts", name="omnigraph")
    assert script.value == "omnigraph.cli:main"


def test_the_readme_names_two_commands():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert sorted(set(re.findall(r"\bmake ([a-z-]+)", readme))) == ["demo", "test"]


def test_the_demo_runs(tmp_path):
    programs = Path(sys.executable).parent
    with commands_in(tmp_path) as commands:
        done = subprocess.run(
            ["bash", str(ROOT / "demo" / "run.sh")],
            env={
                **os.environ,
                "PATH": f"{commands}:{programs}:{os.environ['PATH']}",
                "DEMO_PAPERS": "1000",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout.strip().splitlines()[-1][:5]) == (0, "Done."), done.stderr
