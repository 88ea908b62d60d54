"""The container and the unit: what the entry point runs, who it runs as, how it ends."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from omnigraph.settings import Settings
from tests.server.processes import REPOSITORY, small_server

DEPLOY = REPOSITORY / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text()


def run_entry(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a program in the place of the server that prints its arguments."""
    program = tmp_path / "omnigraph-server"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        [DEPLOY / "entrypoint", *arguments],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "environ", "printed"),
    [
        ((), {"OMNIGRAPH_CLUSTER": "/data"}, "--cluster /data --bind 0.0.0.0:8080"),
        (
            (),
            {"OMNIGRAPH_CLUSTER": "s3://b/c", "OMNIGRAPH_BIND": "127.0.0.1:9"},
            "--cluster s3://b/c --bind 127.0.0.1:9",
        ),
        (
            ("--cluster", "/other"),
            {"OMNIGRAPH_CLUSTER": "/data", "OMNIGRAPH_TARGET": "x"},
            "--cluster /other",
        ),
    ],
)
def test_the_entry_point_starts_the_server(tmp_path, arguments, environ, printed):
    ended = run_entry(tmp_path, *arguments, **environ)
    assert (ended.returncode, ended.stdout) == (0, f"{printed}\n")


@pytest.mark.parametrize("legacy", ["OMNIGRAPH_TARGET_URI", "OMNIGRAPH_CONFIG", "OMNIGRAPH_TARGET"])
@pytest.mark.parametrize("cluster", [{}, {"OMNIGRAPH_CLUSTER": "/data"}])
def test_the_entry_point_refuses_what_older_releases_took(tmp_path, legacy, cluster):
    ended = run_entry(tmp_path, **{legacy: "x"}, **cluster)
    assert ended.returncode == 64
    assert "OMNIGRAPH_CLUSTER" in ended.stderr


def test_the_entry_point_refuses_to_guess_what_to_serve(tmp_path):
    assert run_entry(tmp_path).returncode == 64


def test_the_health_check_asks_the_server(tmp_path):
    health = [DEPLOY / "health"]
    assert subprocess.run(health, env={"OMNIGRAPH_BIND": "127.0.0.1:1"}, check=False).returncode
    with small_server(tmp_path, workers=1).await_listening() as server:
        environ = {"PATH": os.environ["PATH"], "OMNIGRAPH_BIND": server.address}
        # The small application has no such route: 404 is not healthy.
        assert subprocess.run(health, env=environ, check=False).returncode == 1


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", CONTAINER, flags=re.MULTILINE)
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line]  # type: ignore[misc]


def test_the_container_is_not_root_and_says_how_it_is():
    by_name: dict[str, list[str]] = {}
    for name, rest in instructions():
        by_name.setdefault(name, []).append(rest)
    assert by_name["USER"] == ["10001"]
    assert by_name["ENTRYPOINT"] == ['["/usr/local/bin/entrypoint"]']
    assert "--interval=30s" in by_name["HEALTHCHECK"][0]
    assert set(by_name) <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"),
    }
    for rest in by_name["COPY"]:
        sources = [word for word in shlex.split(rest)[:-1] if not word.startswith("--from")]
        assert "--from=build" in rest or all((REPOSITORY / name).exists() for name in sources)


@pytest.mark.slow
def test_the_steps_of_the_container_install_a_server_that_runs(tmp_path):
    """Where no container engine runs: the same commands in a clean directory."""
    build, target = tmp_path / "build", tmp_path / "opt"
    build.mkdir()
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest and "entrypoint" not in rest:
            *sources, _ = shlex.split(rest)
            for source in sources:
                copy = shutil.copytree if (REPOSITORY / source).is_dir() else shutil.copy
                copy(REPOSITORY / source, build / source)
        if name == "RUN" and "useradd" not in rest:
            command = rest.replace("/opt/omnigraph", str(target))
            subprocess.run(["sh", "-ec", command], cwd=build, check=True, timeout=900)
    environ = {"PATH": f"{target}/bin:/usr/bin:/bin"}
    ended = subprocess.run(
        [DEPLOY / "entrypoint"],
        env={**environ, "OMNIGRAPH_CLUSTER": str(tmp_path / "nothing")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "cluster_state_missing" in ended.stderr


def test_the_unit_ends_the_server_in_order():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "omnigraph.service")
    service = unit["Service"]
    assert service["KillMode"] == "mixed"
    assert service["KillSignal"] == "SIGTERM"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service["TimeoutStopSec"]) > Settings().drain_seconds
    assert service["User"] != "root"
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/omnigraph-server")
    assert arguments[0] == "--cluster"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit():
    ended = subprocess.run(
        ["systemd-analyze", "verify", DEPLOY / "omnigraph.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Unknown" not in ended.stderr
