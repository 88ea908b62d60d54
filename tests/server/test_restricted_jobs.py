"""Jobs of actors who do not see all rows: they write as their requests do, and tell nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, Policy
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.server.access import Access, RunState
from omnigraph.server.state import CurrentGate
from tests.server.processes import until
from tests.server.serving import Client, Server, ndjson, serving
from tests.server.test_jobs import ASYNC, ended

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Person { name: String @key  tenant: String  boss: String? @unique }"
BUNDLE = """
version: 2
groups: {staff: [ana, bo], admins: [root]}
actors: {ana: {tenant: t1}, bo: {tenant: t2}}
rules:
  - {id: staff, allow: {actors: {group: staff}, actions: [read, change]}}
  - {id: admins, allow: {actors: {group: admins}, actions: [read, change, admin]}}
rows:
  - {id: own, actors: {group: staff}, types: [Person], where: tenant = $actor.tenant}
  - {id: all, actors: {group: admins}, types: ["*"]}
"""
PEOPLE = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
TOKENS = {f"tok-{actor}": actor for actor in ("ana", "bo", "root")}


class Office:
    """A served graph whose policy can be replaced."""

    def __init__(self, server: Server, access: list[Access]) -> None:
        self.ana, self.bo, self.root = (server.client(token, "g") for token in TOKENS)
        self._server, self._access = server, access

    def reload(self, bundle: str) -> None:
        self._access[0] = Access(RunState.POLICY, {"g": Policy.parse(bundle)})
        self._server.swap(access=self._access[0])


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([person("hidden", "t2", boss="chief"), person("own", "t1")])
    access = [Access(RunState.POLICY, {"g": Policy.parse(BUNDLE)})]
    gate = CurrentGate("g", lambda: access[0])
    with (
        Graph.open(tmp_path / "g.omni", local_files=False, policy=gate, durability="os") as graph,
        serving({"g": graph}, tokens=TOKENS, access=access[0]) as server,
    ):
        yield Office(server, access)


def person(name: str, tenant: str, **more: str) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "tenant": tenant, **more}}


def begin(client: Client, *rows: dict[str, Any], mode: str = "append") -> str:
    answer = client.post(
        f"/load/ndjson?mode={mode}", raw=ndjson(list(rows)).encode(), headers=ASYNC
    )
    assert answer.status == 202, answer.body
    job: str = answer.json["job_id"]
    return job


def status(client: Client, job: str) -> str:
    state: str = client.get(f"/jobs/{job}").ok()["status"]
    return state


def names(client: Client) -> list[str]:
    return [row["p.name"] for row in client.post("/query", {"query": PEOPLE}).ok()["rows"]]


def test_a_job_loads_only_rows_that_its_actor_sees(office: Office) -> None:
    job = ended(office.ana, begin(office.ana, person("new", "t1")))
    assert (job["status"], job["result"]["total_entities"]) == ("succeeded", 1)
    failed = ended(office.ana, begin(office.ana, person("one", "t1"), person("other", "t2")))
    assert (failed["status"], failed["error"]["reason"]) == ("failed", "policy_denied")
    assert failed["commits"] == []
    assert names(office.ana) == ["new", "own"]
    assert names(office.root) == ["hidden", "new", "own"]


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize(
    "row", [person("hidden", "t1"), person("new", "t1", boss="chief")], ids=["key", "unique"]
)
def test_a_job_that_meets_a_hidden_row_fails_as_its_request_does(
    office: Office, mode: str, row: dict[str, Any]
) -> None:
    request = office.ana.post(
        f"/load/ndjson?mode={mode}",
        raw=ndjson([row]).encode(),
        headers={"Content-Type": "application/x-ndjson"},
    ).fails(403, "policy denied")
    job = ended(office.ana, begin(office.ana, row, mode=mode))
    assert job["status"] == "failed"
    shown = {
        key: value for key, value in job["error"].items() if key in ("error", "reason", "hint")
    }
    assert shown == {key: request[key] for key in shown}
    for text in (json.dumps(job), json.dumps(request)):
        assert "hidden" not in text.replace(json.dumps(row["data"]["name"]), "")
        assert "chief" not in text
    assert names(office.root) == ["hidden", "own"]


def test_others_know_nothing_of_a_job(office: Office) -> None:
    job = begin(office.ana, person("new", "t1"))
    absent = office.bo.get(f"/jobs/{job[:-4]}0000")
    for answer in (office.bo.get(f"/jobs/{job}"), office.bo.delete(f"/jobs/{job}")):
        assert answer.status == absent.status == 404
    assert office.bo.get("/jobs").ok()["jobs"] == []
    ended(office.ana, job)
    assert [row["job_id"] for row in office.root.get("/jobs").ok()["jobs"]] == [job]


@pytest.mark.parametrize(
    "bundle",
    [
        BUNDLE.replace("actions: [read, change]}", "actions: [read]}"),
        BUNDLE.replace("{tenant: t1}", "{tenant: t3}"),
    ],
    ids=["the right to change", "the rows"],
)
def test_a_job_that_waits_runs_with_the_rights_of_the_moment(office: Office, bundle: str) -> None:
    """Two jobs of another run; a third starts when they end, under another policy."""
    reached, go_on = threading.Event(), threading.Event()

    def stop(point: Failpoint) -> None:
        if point is Failpoint.WRITE_AFTER_LEASES and not reached.is_set():
            reached.set()
            assert go_on.wait(60)

    with hooked(stop):
        try:
            # The second cannot end before the first: its leases are in the way.
            running = [begin(office.root, person(name, "t9")) for name in ("r1", "r2")]
            assert reached.wait(60)
            for job_id in running:
                until(lambda job_id=job_id: status(office.root, job_id) == "running", "a start")
            waiting = begin(office.ana, person("late", "t1"))
            assert status(office.ana, waiting) == "queued"
            office.reload(bundle)
        finally:
            go_on.set()
        for job in running:
            assert ended(office.root, job)["status"] == "succeeded"
        job = ended(office.ana, waiting)
    assert (job["status"], job["error"]["reason"]) == ("failed", "policy_denied")
    assert "late" not in names(office.root)
