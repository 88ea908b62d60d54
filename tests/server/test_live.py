"""A served cluster that changes: graph by graph, by its ledger and by sent configurations."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.sent_bundle import files_to_send, received_bundle
from omnigraph.errors import InputError, NotFound, PolicyDenied
from tests.cluster.lab import DUE_DATES, SCHEMA, WIDER, Lab
from tests.cluster.ledgers import ULID
from tests.server.processes import Answer, ServerUnderTest, is_alive, until

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("live cluster")]

PROGRAMS = Path(sys.executable).parent
TOKENS = {"ana": "ana-secret-1", "bo": "bo-secret-2", "cy": "cy-secret-3"}
RULES = """\
version: 1
groups: {{staff: [{staff}]}}
rules:
  - {{id: staff, allow: {{actors: {{group: staff}}, actions: [read, change, invoke_query]}}}}
"""
SERVER_RULES = """\
version: 1
groups: {ops: [ana]}
rules: [{id: ops, allow: {actors: {group: ops}, actions: [graph_list, config_manage, admin]}}]
"""
TWO_GRAPHS = """\
version: 1
graphs:
  kb: {schema: kb.pg, queries: queries/}
  wiki: {schema: wiki.pg, queries: wiki.gq}
policies:
  kb-rules: {file: kb.policy.yaml, applies_to: [kb]}
  wiki-rules: {file: wiki.policy.yaml, applies_to: [wiki]}
  server: {file: srv.policy.yaml, applies_to: [cluster]}
"""
PAGES = "query pages() { match { $p: Page } return { $p.name } order { $p.name } }\n"
FIRST = PAGES.replace("pages", "first")


class LiveLab(Lab):
    """Two graphs with policies, and one for the server."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.write("cluster.yaml", TWO_GRAPHS)
        self.write("wiki.pg", "node Page {\n  name: String @key\n}\n")
        self.write("wiki.gq", PAGES)
        self.write("srv.policy.yaml", SERVER_RULES)
        self.staff("kb", "ana, bo")
        self.staff("wiki", "ana, bo")

    def staff(self, graph: str, names: str) -> None:
        self.write(f"{graph}.policy.yaml", RULES.format(staff=names))

    def restore(self) -> None:
        """The files of the beginning."""
        self.__init__(self.directory)  # type: ignore[misc]

    @property
    def files(self) -> dict[str, str]:
        log = DiagnosticLog()
        files = files_to_send(self.bundle, str(self.directory), log)
        assert log.ok, log.entries
        return files


def token(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


@contextmanager
def served(lab: LiveLab, folder: Path, workers: int = 2) -> Iterator[ServerUnderTest]:
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps(TOKENS))
    command = [str(PROGRAMS / "omnigraph-server"), "--cluster", str(lab.directory)]
    command += ["--bind", "127.0.0.1:0", "--workers", str(workers)]
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)}
    with ServerUnderTest(command, folder / f"server-{workers}.log", environ) as server:
        yield server.await_listening()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> LiveLab:
    lab = LiveLab(tmp_path_factory.mktemp("live") / "lab")
    lab.applied()
    for graph, row in (("kb", "Task"), ("wiki", "Page")):
        with lab.open(graph, "rw") as opened:
            opened.load([{"type": row, "data": {"name": "a"}}])
    return lab


@pytest.fixture(scope="module")
def server(lab: LiveLab) -> Iterator[ServerUnderTest]:
    with served(lab, lab.directory.parent) as started:
        yield started


def invoke(server: ServerUnderTest, graph: str, query: str, actor: str = "bo") -> Answer:
    return server.ask("POST", f"/graphs/{graph}/queries/{query}", {}, token(actor))


def deploy(server: ServerUnderTest, files: dict[str, str], actor: str = "ana") -> Answer:
    return server.ask("POST", "/cluster/apply", {"files": files}, token(actor))


def ready(server: ServerUnderTest) -> Any:
    return server.ask("GET", "/readyz").json


def revision(lab: LiveLab) -> int:
    number: int = lab.state["state_revision"]
    return number


# -- following the ledger -------------------------------------------------------------------------


def test_an_apply_is_served_without_a_restart(lab, server):
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    assert lab.apply().is_converged
    until(lambda: ready(server)["revision"] == revision(lab))
    answer = invoke(server, "kb", "due")
    assert answer.json["rows"] == [{"t.name": "a", "t.due": None}], answer.body
    assert ready(server)["status"] == "ready"


def test_a_broken_graph_keeps_its_state_and_holds_up_nobody(lab, server):
    """Its applied policy is damaged: the old one decides, and the other graph moves on."""
    lab.staff("kb", "ana")
    lab.write("wiki.gq", PAGES + FIRST)
    # No server sees the ledger before the text is damaged.
    server.send(signal.SIGSTOP)
    try:
        assert lab.apply().is_converged
        digest = lab.resources["policy.kb-rules"]["digest"]
        text = lab.directory / f"__cluster/resources/policy/kb-rules/{digest}.yaml"
        whole = text.read_bytes()
        text.write_bytes(b"version: 9\n")
    finally:
        server.send(signal.SIGCONT)
    until(lambda: ready(server)["revision"] == revision(lab))
    state = ready(server)
    assert (state["status"], state["served"], state["unserved"], state["kept"]) == (
        "degraded",
        2,
        0,
        1,
    )
    assert state["kept_reasons"][0]["code"] == "catalog_payload_digest_mismatch"
    assert "kb" not in json.dumps(state)
    assert invoke(server, "wiki", "first").status == 200
    assert invoke(server, "kb", "due").status == 200, "the old policy allows it"
    metrics = server.ask("GET", "/metrics").body.decode()
    assert "omnigraph_graphs_kept 1.0" in metrics
    assert f"omnigraph_ledger_revision {float(revision(lab))}" in metrics
    assert server.events("graph keeps its earlier state")[0]["graph_id"] == "kb"
    text.write_bytes(whole)
    assert server.ask("POST", "/reload", None, token("ana")).status == 200
    assert ready(server)["status"] == "ready"
    assert invoke(server, "kb", "due").status == 404


def test_a_broken_policy_of_the_server_keeps_everything(lab, server):
    before = ready(server)
    lab.write("srv.policy.yaml", SERVER_RULES.replace("[ana]", "[ana, cy]"))
    lab.staff("kb", "ana, bo")
    server.send(signal.SIGSTOP)
    try:
        assert lab.apply().is_converged
        digest = lab.resources["policy.server"]["digest"]
        text = lab.directory / f"__cluster/resources/policy/server/{digest}.yaml"
        whole = text.read_bytes()
        text.unlink()
    finally:
        server.send(signal.SIGCONT)
    until(lambda: ready(server)["failure"] is not None)
    state = ready(server)
    assert state["status"] == "degraded"
    assert state["failure"]["codes"] == ["catalog_payload_missing"]
    assert [state[key] for key in ("digest", "revision", "served")] == [
        before[key] for key in ("digest", "revision", "served")
    ]
    assert invoke(server, "wiki", "pages").status == 200
    assert "omnigraph_reload_failed 1.0" in server.ask("GET", "/metrics").body.decode()
    text.write_bytes(whole)
    assert server.ask("POST", "/reload", None, token("ana")).status == 200
    assert (ready(server)["status"], ready(server)["failure"]) == ("ready", None)


# -- sent configurations --------------------------------------------------------------------------


def test_a_sent_configuration_is_in_force_everywhere_when_the_call_returns(lab, server):
    lab.staff("kb", "ana, bo")
    assert deploy(server, lab.files).status == 200
    for staff, status in (("ana", 404), ("ana, bo", 200)):
        lab.staff("kb", staff)
        answer = deploy(server, lab.files)
        assert answer.status == 200, answer.body
        deployment = answer.json
        assert (deployment["outcome"], deployment["in_force"]) == ("converged", True)
        assert deployment["report"]["applied_count"] == 1
        # Many connections: each reader process replies some.
        assert {invoke(server, "kb", "due").status for _ in range(20)} == {status}
        shown = server.ask("GET", f"/deployments/{deployment['id']}", None, token("ana"))
        assert shown.json == deployment
    listed = server.ask("GET", "/deployments?limit=1", None, token("ana")).json["deployments"]
    assert [entry["id"] for entry in listed] == [deployment["id"]]
    assert (listed[0]["actor"], "report" in listed[0]) == ("ana", False)


def test_only_who_may_manage_the_server_applies_or_learns_of_it(lab, server):
    before = lab.ledger.read_bytes()
    requests = [("POST", "/cluster/apply", {"files": lab.files})]
    requests += [("GET", "/deployments", None), ("GET", "/deployments/x", None)]
    for method, path, body in requests:
        for headers, status in ((token("bo"), 403), ({}, 401)):
            answer = server.ask(method, path, body, headers)
            assert answer.status == status, (path, answer.body)
            assert "kb" not in answer.body.decode()
    assert lab.ledger.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["../secret.pg", "/etc/passwd", "queries//a.gq", "./a.gq", "a\\b.gq", "a\0b", ""]
)
def test_a_file_name_cannot_leave_the_configuration(lab, server, name):
    answer = deploy(server, {**lab.files, name: "x"})
    assert answer.status == 400, answer.body
    assert "invalid file name" in answer.json["error"]


def test_no_file_of_the_server_is_read(lab, server):
    """A schema that was not sent is missing, although the server could read it."""
    secret = lab.directory.parent / "outside.pg"
    secret.write_text(SCHEMA)
    config = lab.files["cluster.yaml"]
    for path in (str(secret), "../outside.pg", "wiki.pg"):
        sent = {**lab.files, "cluster.yaml": config.replace("kb.pg", path)}
        sent.pop("wiki.pg")
        answer = deploy(server, sent).json
        assert answer["outcome"] == "failed"
        codes = {entry["code"] for entry in answer["report"]["diagnostics"]}
        assert codes == {"schema_file_missing", "query_typecheck_skipped"}, answer


def test_what_is_wrong_is_said_with_file_line_and_field(lab, server):
    broken = {**lab.files, "kb.pg": "node Task {\n  name: Strin @key\n}\n"}
    broken["wiki.policy.yaml"] = "version: 1\ngroups: {staff: [ana]}\nrules: 7\n"
    answer = deploy(server, broken)
    assert (answer.status, answer.json["outcome"]) == (200, "failed")
    problems = {entry["path"]: entry for entry in answer.json["report"]["diagnostics"]}
    assert "kb.pg:2" in problems["graphs.kb.schema"]["message"]
    assert "wiki.policy.yaml" in problems["policies.wiki-rules.file"]["message"]
    assert answer.json["in_force"] is None
    config = lab.files["cluster.yaml"]
    for text, code in (
        ("storage: s3://other/place\n", "storage_root_mismatch"),
        (
            "providers: {embedding: {m: {kind: openai, model: m, "
            "api_key: '${OMNIGRAPH_SERVER_BEARER_TOKENS}'}}}\n",
            "embedding_api_key_reserved",
        ),
    ):
        refused = deploy(server, {**lab.files, "cluster.yaml": config + text}).json
        codes = [entry["code"] for entry in refused["report"]["diagnostics"]]
        assert (refused["outcome"], codes) == ("failed", [code])
    too_few = deploy(server, {"kb.pg": SCHEMA})
    assert (too_few.status, too_few.json["details"]["field"]) == (400, "files")


def command(lab: LiveLab, *arguments: str, actor: str = "ana") -> tuple[int, str]:
    """What ``omnigraph cluster`` prints."""
    environ = {
        **os.environ,
        "OMNIGRAPH_BEARER_TOKEN": TOKENS[actor],
        "OMNIGRAPH_CONFIG": str(lab.directory.parent / "none.yaml"),
    }
    program = [str(PROGRAMS / "omnigraph"), "cluster", *arguments]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def apply_by_command(lab: LiveLab, *arguments: str) -> tuple[int, str]:
    return command(lab, "apply", "--config", str(lab.directory), *arguments)


def test_the_command_prints_what_a_local_apply_prints(lab, server, tmp_path):
    twin = LiveLab(tmp_path / "lab")
    shutil.rmtree(twin.directory)
    shutil.copytree(lab.directory, twin.directory)
    for one in (lab, twin):
        one.staff("wiki", "ana, bo, cy")
    served = apply_by_command(lab, "--server", f"http://{server.address}")
    local = apply_by_command(twin, "--as", "ana")
    assert served[0] == local[0] == 0, (served, local)
    *lines, last = served[1].splitlines()
    assert last.startswith("  in force on the server, deployment 01")
    assert lines == local[1].splitlines()[:-1]
    for one in (lab, twin):
        one.write("kb.pg", "node Task {\n")
    broken = apply_by_command(lab, "--server", f"http://{server.address}")
    assert broken == apply_by_command(twin, "--as", "ana")
    assert broken[0] == 1
    lab.write("kb.pg", WIDER)


def test_deployments_are_listed_and_shown_by_commands(lab, server):
    for staff in ("ana, bo, cy", "ana, bo"):
        lab.staff("wiki", staff)
        deploy(server, lab.files)
    url = f"http://{server.address}"
    listed = command(lab, "deployments", "--limit", "2", "--server", url)
    assert listed[0] == 0, listed
    first, newest, _ = listed[1].splitlines()
    assert first == "cluster deployments: 2"
    newest_id, started, outcome = newest.split(maxsplit=2)
    assert outcome == f"converged, by ana, revision {revision(lab)}, in force"
    # The records lie beside the ledger: no server is needed.
    assert command(lab, "deployments", "--limit", "2", "--config", str(lab.directory)) == listed
    shown = command(lab, "deployments", newest_id, "--server", url)
    assert shown == command(lab, "deployments", newest_id, "--config", str(lab.directory))
    lines = shown[1].splitlines()
    assert lines[0] == f"deployment {newest_id}: {outcome}"
    assert lines[1].startswith(f"  started {started}, ended 20")
    assert [line.split()[-1] for line in lines[2:10]] == sorted(lab.files)
    assert lines[10].startswith("cluster apply: ")
    document = json.loads(command(lab, "deployments", newest_id, "--server", url, "--json")[1])
    assert document == server.ask("GET", f"/deployments/{newest_id}", None, token("ana")).json
    assert command(lab, "deployments", ULID, "--server", url)[0] == 1
    assert command(lab, "deployments", ULID, "--config", str(lab.directory))[0] == 1
    assert command(lab, "deployments", "--server", url, actor="bo")[0] == 1
    assert command(lab, "deployments", "--server", url, "--limit", "0")[0] == 1


def test_the_client_applies_lists_and_shows_deployments(lab, server):
    for url in (f"http://{server.address}", f"http://{server.address}/graphs/kb"):
        with omnigraph.connect(url, token=TOKENS["ana"]) as graph:
            deployment = graph.deployments.apply(lab.files)
            assert (deployment.outcome, deployment.in_force) == ("converged", True)
            assert deployment.report["ok"] is True
            assert graph.deployments.get(deployment.deployment_id) == deployment
            (newest,) = graph.deployments.list(limit=1)
            assert newest == dataclasses.replace(deployment, report=None)
            with pytest.raises(NotFound):
                graph.deployments.get(ULID)
            with pytest.raises(InputError, match="leads out of the configuration"):
                graph.deployments.apply({**lab.files, "../a": ""})
            with pytest.raises(InputError, match=r"plan"):
                graph.deployments.apply(lab.files, plan="{}")
            failed = graph.deployments.apply({**lab.files, "kb.pg": "node {"})
            assert (failed.outcome, failed.in_force) == ("failed", None)
    with omnigraph.connect(f"http://{server.address}", graph="kb", token=TOKENS["bo"]) as graph:
        for call in (graph.deployments.list, lambda: graph.deployments.apply(lab.files)):
            with pytest.raises(PolicyDenied):
                call()
    assert asyncio.run(_deployed_async(lab, server)) == deployment.deployment_id


async def _deployed_async(lab: LiveLab, server: ServerUnderTest) -> str:
    address = f"http://{server.address}"
    async with await omnigraph.connect_async(address, graph="kb", token=TOKENS["ana"]) as graph:
        deployment = await graph.deployments.apply(lab.files)
        assert await graph.deployments.get(deployment.deployment_id) == deployment
        newest = await graph.deployments.list(limit=3)
        assert newest[0].deployment_id == deployment.deployment_id
        with pytest.raises(NotFound):
            await graph.deployments.get(ULID)
    return newest[2].deployment_id


def test_a_configuration_without_a_lock_is_in_force_too(lab, server):
    config = lab.files["cluster.yaml"]
    sent = {**lab.files, "cluster.yaml": config + "state: {lock: false}\n"}
    deployment = deploy(server, sent).json
    assert (deployment["outcome"], deployment["in_force"]) == ("converged", True)


def test_a_file_outside_of_the_directory_is_not_sent(tmp_path):
    lab = LiveLab(tmp_path / "lab")
    (tmp_path / "outside.pg").write_text(SCHEMA)
    (lab.directory / "kb.pg").unlink()
    (lab.directory / "kb.pg").symlink_to(tmp_path / "outside.pg")
    for path in ("kb.pg", "../outside.pg", str(tmp_path / "outside.pg")):
        lab.write("cluster.yaml", TWO_GRAPHS.replace("kb.pg", path))
        with pytest.raises(InputError, match="cannot be sent to a server"):
            files_to_send(lab.bundle, str(lab.directory), DiagnosticLog())
    with pytest.raises(InputError, match=r"no cluster\.yaml"):
        received_bundle("sent", {})


# -- readers while it changes ---------------------------------------------------------------------


class Readers:
    """Clients that invoke a stored query all the time, and keep what was not answered by 200."""

    def __init__(self, server: ServerUnderTest, count: int) -> None:
        self._server = server
        self._end = threading.Event()
        self.answered = [0] * count
        self.failed: list[Any] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(count)
        ]

    def _run(self, number: int) -> None:
        graph, query = (("kb", "due"), ("wiki", "pages"))[number % 2]
        connection = self._server.connect()
        headers = {**token("bo"), "Content-Type": "application/json"}
        while not self._end.is_set():
            try:
                connection.request("POST", f"/graphs/{graph}/queries/{query}", b"{}", headers)
                answer = connection.getresponse()
                body = answer.read()
            except OSError as error:
                self.failed.append(error)
                return
            self.answered[number] += 1
            if answer.status != 200:
                self.failed.append((answer.status, body))
        connection.close()

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def advance(self) -> None:
        """Wait until every client has got an answer that it had not asked for before."""
        before = list(self.answered)
        until(
            lambda: (
                self.failed or all(n > b + 1 for n, b in zip(self.answered, before, strict=True))
            )
        )


def changed(lab: LiveLab, number: int) -> dict[str, str]:
    """A policy, a query or a schema changes, in turn; later schemas have more properties."""
    match number % 3:
        case 0:
            lab.staff("kb", "ana, bo" if number % 2 else "ana, bo, cy")
        case 1:
            lab.write("wiki.gq", f"{PAGES}// {number}\n")
        case 2:
            lab.edit("kb.pg", "}\n", f"  p{number}: String?\n}}\n")
            lab.write("queries/due.gq", DUE_DATES.replace("$t.due", f"$t.due, $t.p{number}"))
    return lab.files


def apply_under_readers(lab: LiveLab, server: ServerUnderTest, applies: int, clients: int) -> int:
    with Readers(server, clients) as readers:
        readers.advance()
        for number in range(applies):
            files = changed(lab, number)
            if number % 2:
                assert lab.apply().is_converged
            else:
                answer = deploy(server, files)
                assert answer.json["outcome"] == "converged", answer.body
        until(lambda: ready(server)["revision"] == revision(lab))
        readers.advance()
    assert readers.failed == []
    return sum(readers.answered)


def test_no_read_fails_while_policies_queries_and_schemas_change(lab, server):
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    lab.staff("kb", "ana, bo")
    assert deploy(server, lab.files).json["in_force"] is True
    assert apply_under_readers(lab, server, 6, 50) > 100


@pytest.mark.slow
def test_no_read_fails_in_a_hundred_applies(tmp_path):
    lab = LiveLab(tmp_path / "lab")
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    lab.applied()
    with served(lab, tmp_path) as server:
        apply_under_readers(lab, server, 100, 50)


# -- a writer that dies ---------------------------------------------------------------------------


def test_a_writer_that_dies_in_an_apply_is_completed_by_the_next(tmp_path):
    lab = LiveLab(tmp_path / "lab").applied()
    environ = "OMNIGRAPH_CLUSTER_LOCK_SECONDS"
    os.environ[environ] = "2"
    try:
        with served(lab, tmp_path) as server:
            writer = _writer(server)
            lab.write("kb.pg", WIDER)
            lab.write("queries/due.gq", DUE_DATES)
            replies: list[Answer] = []
            files = lab.files
            thread = threading.Thread(target=lambda: replies.append(deploy(server, files)))
            thread.start()
            # The sidecar says that the schema is about to change, or has changed.
            until(lambda: lab.sidecars, "a sidecar")
            os.kill(writer, signal.SIGKILL)
            thread.join(60)
            assert replies[0].status in (503, 200), replies[0].body
            until(lambda: not is_alive(writer))
            records = server.ask("GET", "/deployments", None, token("ana")).json["deployments"]
            assert [entry["outcome"] for entry in records] == (
                ["lost"] if replies[0].status == 503 else ["converged"]
            )
            assert invoke(server, "kb", "due").status == 200

            def applied() -> bool:
                """The lock of the dead process expires by itself."""
                answer = deploy(server, files)
                return answer.status == 200 and answer.json["outcome"] == "converged"

            until(applied)
            assert ready(server)["status"] == "ready"
            rows = invoke(server, "kb", "due")
            assert rows.status == 200, rows.body
            assert lab.sidecars == []
    finally:
        del os.environ[environ]
    # The record stays over a restart of the server.
    with served(lab, tmp_path, 1) as again:
        listed = again.ask("GET", "/deployments", None, token("ana")).json["deployments"]
        assert [entry["id"] for entry in records] == [listed[-1]["id"]]
        assert listed[-1]["outcome"] == records[0]["outcome"]
        assert listed[0]["outcome"] == "converged"
        # A single process applies, too.
        lab.staff("wiki", "ana")
        assert deploy(again, lab.files).json["in_force"] is True
        assert invoke(again, "wiki", "pages").status == 404


def _writer(server: ServerUnderTest) -> int:
    """The first process that the supervisor started."""
    return min(server.children())
