"""Applies by servers: beside each other, beside local ones, and with something that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.names import BRANCHES_LEASE
from tests.cluster.lab import DUE, DUE_DATES, WIDER, codes
from tests.server.processes import Answer, ServerUnderTest, is_alive, until
from tests.server.test_live import (
    FIRST,
    PAGES,
    PROGRAMS,
    TOKENS,
    LiveLab,
    command,
    deploy,
    invoke,
    ready,
    revision,
    served,
    token,
)

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("live cluster")]

LOCK_SECONDS = "OMNIGRAPH_CLUSTER_LOCK_SECONDS"
THREE = """\
  zoo: {schema: wiki.pg, queries: zoo.gq}
policies:
  zoo-rules: {file: wiki.policy.yaml, applies_to: [zoo]}
"""
PROVIDER = """\
providers: {embedding: {paid: {kind: openai, model: m, api_key: "${NOBODY_HAS_THIS}"}}}
"""


def widen(lab: LiveLab) -> dict[str, str]:
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    return lab.files


def records(lab: LiveLab) -> list[dict[str, Any]]:
    """The deployments as the command shows them, from the storage."""
    code, text = command(lab, "deployments", "--json", "--config", str(lab.directory))
    assert code == 0, text
    listed: list[dict[str, Any]] = json.loads(text)["deployments"]
    return listed


class Sent:
    """A configuration that was sent, whose answer is still to come."""

    def __init__(self, server: ServerUnderTest, files: dict[str, str]) -> None:
        self._replies: list[Answer | OSError] = []
        self._thread = threading.Thread(target=self._send, args=(server, files))
        self._thread.start()

    def _send(self, server: ServerUnderTest, files: dict[str, str]) -> None:
        try:
            self._replies.append(deploy(server, files))
        except OSError as error:
            self._replies.append(error)

    @property
    def answer(self) -> Answer | OSError:
        self._thread.join(120)
        return self._replies[0]


def writer_of(server: ServerUnderTest) -> int:
    """The first process that the supervisor started."""
    return min(server.children())


@contextmanager
def continued(pid: int) -> Iterator[None]:
    """Let a process that stands still go on at the end."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def delayed_applies(lab: LiveLab) -> Iterator[None]:
    """Applies that change the schema of a graph have their lock and sidecar, and wait."""
    with lab.open("kb", "rw") as graph, graph._handle.store.leases.acquire([BRANCHES_LEASE], 1):
        yield


@pytest.fixture
def lab(tmp_path: Path) -> LiveLab:
    return LiveLab(tmp_path / "lab").applied()  # type: ignore[return-value]


# -- at once --------------------------------------------------------------------------------------


def test_of_two_applies_by_two_servers_one_goes_on_and_the_other_names_the_lock(lab, tmp_path):
    with served(lab, tmp_path, 2) as first, served(lab, tmp_path, 1) as second:
        with delayed_applies(lab):
            sent = Sent(first, widen(lab))
            until(lambda: lab.sidecars, "a sidecar")
            os.kill(writer_of(first), signal.SIGSTOP)
        with continued(writer_of(first)):
            refused = deploy(second, lab.files).json
            assert (refused["outcome"], refused["in_force"]) == ("failed", None)
            (problem,) = refused["report"]["diagnostics"]
            assert problem["code"] == "state_lock_held"
            assert f"process {writer_of(first)}" in problem["message"]
            # Nobody with access to the storage gets past it either.
            assert codes(lab.apply()) == ["state_lock_held"]
        answer = sent.answer
        assert isinstance(answer, Answer)
        assert (answer.json["outcome"], answer.json["in_force"]) == ("converged", True)
        assert deploy(second, lab.files).json["outcome"] == "converged"
        for server in (first, second):
            until(lambda server=server: ready(server)["revision"] == revision(lab))
            assert invoke(server, "kb", "due").status == 200
    assert [entry["outcome"] for entry in records(lab)] == ["converged", "failed", "converged"]
    assert not lab.lock.exists()


def test_a_served_apply_beside_a_local_one_waits_for_nobody(lab, tmp_path):
    with served(lab, tmp_path, 1) as server:
        widen(lab)
        program = [sys.executable, "-m", "tests.cluster.stopped", str(lab.directory)]
        local = subprocess.Popen(
            [*program, "apply", Failpoint.CLUSTER_BEFORE_LEDGER],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: _state_of(local.pid) == "T", "the local apply stands still")
            refused = deploy(server, lab.files).json
            codes_of = [entry["code"] for entry in refused["report"]["diagnostics"]]
            assert (refused["outcome"], codes_of) == ("failed", ["state_lock_held"])
            os.kill(local.pid, signal.SIGCONT)
            assert json.loads(local.communicate(timeout=120)[0])["converged"] is True
        finally:
            local.kill()
            local.communicate()
        assert deploy(server, lab.files).json["outcome"] == "converged"
        assert invoke(server, "kb", "due").json["columns"] == ["t.name", "t.due"]
    assert not lab.lock.exists()


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_many_served_applies_at_once_leave_one_of_them(lab, tmp_path):
    with served(lab, tmp_path, 2) as server:
        sent = []
        for number in range(6):
            lab.write("wiki.gq", f"{PAGES}// {number}\n")
            sent.append((lab.files, Sent(server, lab.files)))
        replies = [(files, one.answer.json) for files, one in sent]
        assert {answer["outcome"] for _, answer in replies} <= {"converged", "failed"}
        for _, answer in replies:
            if answer["outcome"] == "failed":
                problems = [entry["code"] for entry in answer["report"]["diagnostics"]]
                assert problems == ["state_lock_held"]
        last = max(
            (answer["revision"], files["wiki.gq"])
            for files, answer in replies
            if answer["outcome"] == "converged"
        )
        digest = lab.resources["query.wiki.pages"]["digest"]
        text = lab.directory / f"__cluster/resources/query/wiki/pages/{digest}.gq"
        assert (revision(lab), text.read_text()) == last
        assert ready(server)["revision"] == revision(lab)
    assert len(records(lab)) == 6
    assert not lab.lock.exists()


# -- something dies -------------------------------------------------------------------------------


def test_a_client_that_dies_stops_nothing(lab, tmp_path):
    with served(lab, tmp_path, 2) as server:
        widen(lab)
        program = [str(PROGRAMS / "omnigraph"), "cluster", "apply", "--config", str(lab.directory)]
        client = subprocess.Popen(
            [*program, "--server", f"http://{server.address}"],
            env={**os.environ, "OMNIGRAPH_BEARER_TOKEN": TOKENS["ana"]},
            stdout=subprocess.DEVNULL,
        )
        folder = lab.directory / "__cluster" / "deployments"
        until(lambda: list(folder.glob("*.json")), "a record")
        client.kill()
        client.wait()
        until(lambda: records(lab)[0]["in_force"], "the deployment is in force")
        assert records(lab)[0]["outcome"] == "converged"
        assert "t.due" in json.dumps(invoke(server, "kb", "due").json["columns"])
    assert (lab.sidecars, lab.lock.exists()) == ([], False)


def _has_record(lab: LiveLab) -> bool:
    return any((lab.directory / "__cluster" / "deployments").glob("*.json"))


def _has_ended(lab: LiveLab) -> bool:
    folder = lab.directory / "__cluster" / "deployments"
    return any('"ended_at"' in path.read_text() for path in folder.glob("*.json"))


MOMENTS: dict[str, Callable[[LiveLab], object]] = {
    "it has begun": _has_record,
    "it has the lock": lambda lab: lab.lock.exists(),
    "a graph is about to change": lambda lab: lab.sidecars,
    "the ledger is written": lambda lab: revision(lab) > 2,
    "it has ended": _has_ended,
}
PASSING = ("it has the lock", "a graph is about to change")


@pytest.mark.slow
@pytest.mark.parametrize("who", ["server", "writer"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_that_dies_is_honest_and_the_next_one_completes(
    lab, tmp_path, monkeypatch, moment, who
):
    monkeypatch.setenv(LOCK_SECONDS, "1")
    with served(lab, tmp_path, 2) as server:
        writer = writer_of(server)
        with delayed_applies(lab) if moment in PASSING else nullcontext():
            sent = Sent(server, widen(lab))
            until(lambda: MOMENTS[moment](lab), moment)
            if who == "server":
                os.killpg(server.process.pid, signal.SIGKILL)
            else:
                os.kill(writer, signal.SIGKILL)
        until(lambda: not is_alive(writer))
        answer = sent.answer
    (record,) = records(lab)
    is_done = record["outcome"] in ("converged", "failed")
    assert is_done or record["outcome"] == "lost"
    if record["outcome"] == "failed":
        # The writer lived a moment longer than the process that switches.
        assert (who, record["in_force"]) == ("server", False)
    if is_done:
        assert (record["revision"], lab.plan().changes) == (revision(lab), ())
    if isinstance(answer, Answer) and answer.status == 200:
        # Nobody was told of a success that is not recorded.
        assert is_done
    with served(lab, tmp_path, 1) as again:

        def applied() -> bool:
            """The lock of the dead process expires by itself."""
            reply = deploy(again, lab.files)
            return reply.status == 200 and reply.json["outcome"] == "converged"

        until(applied)
        assert invoke(again, "kb", "due").status == 200
    assert (lab.sidecars, lab.lock.exists()) == ([], False)
    listed = records(lab)
    assert (listed[0]["outcome"], listed[-1]["id"]) == ("converged", record["id"])
    assert listed[-1]["outcome"] == record["outcome"]


# -- several graphs that cannot be taken over -----------------------------------------------------


def test_graphs_that_cannot_be_taken_over_keep_their_state_one_by_one(tmp_path):
    lab = LiveLab(tmp_path / "lab")
    lab.edit("cluster.yaml", "policies:\n", THREE)
    lab.write("zoo.gq", PAGES)
    lab.applied()
    lab.write("cluster.yaml", PROVIDER + (lab.directory / "cluster.yaml").read_text())
    with served(lab, tmp_path, 2) as server:
        for graph in ("kb", "wiki"):
            lab.edit("cluster.yaml", f"  {graph}: {{", f"  {graph}: {{embedding_provider: paid, ")
        lab.write("queries/due.gq", DUE + DUE.replace("due", "all"))
        lab.write("zoo.gq", PAGES + FIRST)
        deployment = deploy(server, lab.files).json
        assert (deployment["outcome"], deployment["in_force"]) == ("converged", True)
        noted = {
            entry["path"]: entry["severity"]
            for entry in deployment["report"]["diagnostics"]
            if entry["code"] == "graph_state_kept"
        }
        assert noted == {"graph.kb": "warning", "graph.wiki": "warning"}
        state = ready(server)
        assert (state["status"], state["served"], state["kept"]) == ("degraded", 3, 2)
        assert sum(entry["count"] for entry in state["kept_reasons"]) == 2
        assert "omnigraph_graphs_kept 2.0" in server.ask("GET", "/metrics").body.decode()
        named = {event["graph_id"] for event in server.events("graph keeps its earlier state")}
        assert named == {"kb", "wiki"}
        # Each is served as before, and what was new for the third one is served.
        assert (invoke(server, "kb", "due").status, invoke(server, "kb", "all").status) == (
            200,
            404,
        )
        assert invoke(server, "wiki", "pages").status == 200
        assert invoke(server, "zoo", "first").status == 200
        # One is mended, and does not wait for the other.
        lab.edit("cluster.yaml", "kb: {embedding_provider: paid, ", "kb: {")
        deployment = deploy(server, lab.files).json
        assert deployment["in_force"] is True
        assert ready(server)["kept"] == 1
        assert invoke(server, "kb", "all").status == 200
        assert invoke(server, "wiki", "pages").status == 200
        lab.edit("cluster.yaml", "wiki: {embedding_provider: paid, ", "wiki: {")
        deploy(server, lab.files)
        assert (ready(server)["status"], ready(server)["kept"]) == ("ready", 0)
        assert server.ask("GET", "/graphs", None, token("ana")).status == 200
