"""From an empty directory to served queries: what is applied is what a server serves."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.cluster.lab import DUE_DATES, WIDER, Lab
from tests.server.processes import ServerUnderTest, until
from tests.server.test_serve import PROGRAMS

TOKENS = {"ana": "ana-secret-1", "cy": "cy-secret-2"}
RULES = """\
version: 1
groups: {staff: [ana%s]}
protected_branches: [main]
rules:
  - id: staff-read
    allow: {actors: {group: staff}, actions: [read], branch_scope: any}
  - id: staff-invoke
    allow: {actors: {group: staff}, actions: [invoke_query]}
"""


def as_(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


def test_a_schema_a_query_and_a_policy_change_while_readers_run(tmp_path: Path):
    lab = Lab(tmp_path / "lab")
    lab.write("kb.policy.yaml", RULES % "")
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    command = [str(PROGRAMS / "omnigraph-server"), "--cluster", str(lab.directory)]
    command += ["--bind", "127.0.0.1:0", "--workers", "1"]
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS)}
    with ServerUnderTest(command, tmp_path / "log", environ) as server:
        server.await_listening()

        def invoke(actor: str):
            return server.ask("POST", "/graphs/kb/queries/due", {}, as_(actor))

        assert [list(row) for row in invoke("ana").json["rows"]] == [["t.name"]]
        assert invoke("cy").status == 404
        failures: list[int] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                status = invoke("ana").status
                if status != 200:
                    failures.append(status)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            lab.write("kb.pg", WIDER)
            lab.write("queries/due.gq", DUE_DATES)
            lab.write("kb.policy.yaml", RULES % ", cy")
            assert lab.apply().is_converged
            until(lambda: invoke("cy").status == 200)
            until(lambda: list(invoke("ana").json["rows"][0]) == ["t.name", "t.due"])
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert failures == []
