"""Stored queries between a schema change and the switch to the generation that follows it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.stored_queries import StoredQueries
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.server.switching import SWITCH_SECONDS, SchemaFit
from tests.server.processes import Answer, ServerUnderTest, until
from tests.server.test_live import (
    TWO_GRAPHS,
    LiveLab,
    Readers,
    deploy,
    ready,
    revision,
    served,
    token,
)

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("live cluster")]

TASK = "node Task {{\n  name: String @key\n  {column}\n}}\n"
QUERIES = """\
query due() {{ match {{ $t: Task }} return {{ $t.name, $t.{column} as due }} order {{ $t.name }} }}
query names() {{ match {{ $t: Task }} return {{ $t.name }} order {{ $t.name }} }}
query move($name: String, $to: I64) {{ update Task set {{ {column}: $to }} where name = $name }}
"""
RULES = """\
version: 2
groups: {{staff: [ana, bo], guests: [cy]}}
rules:
  - {{id: staff, allow: {{actors: {{group: staff}}, actions: [read, change, invoke_query]}}}}
  - {{id: guests, allow: {{actors: {{group: guests}}, actions: [read, invoke_query]}}}}
rows:
  - {{id: all, actors: {{group: staff}}, types: [Task]}}
  - {{id: early, actors: {{group: guests}}, types: [Task], where: {column} < 2}}
"""


class SwitchLab(LiveLab):
    """A cluster whose graph has a property that every apply may rename, or drop for another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.write("cluster.yaml", TWO_GRAPHS)
        self._number = 0
        self._declare("p0: I64?")

    @property
    def column(self) -> str:
        return f"p{self._number}"

    def _declare(self, declaration: str) -> None:
        self.write("kb.pg", TASK.format(column=declaration))
        self.write("queries/due.gq", QUERIES.format(column=self.column))
        self.write("kb.policy.yaml", RULES.format(column=self.column))

    def rename(self) -> None:
        """Another name for the property; schema, queries and policy follow."""
        before, self._number = self.column, self._number + 1
        self._declare(f'{self.column}: I64? @rename_from("{before}")')

    def replace(self) -> None:
        """Another property in place of it; its values are gone."""
        self._number += 1
        self._declare(f"{self.column}: I64?")

    def fill(self) -> None:
        rows = [{"name": name, self.column: number} for number, name in enumerate("abc", 1)]
        with self.open("kb", "rw") as graph:
            graph.load([{"type": "Task", "data": row} for row in rows])
        with self.open("wiki", "rw") as graph:
            graph.load([{"type": "Page", "data": {"name": "a"}}])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SwitchLab:
    lab = SwitchLab(tmp_path_factory.mktemp("switch") / "lab")
    lab.applied()
    lab.fill()
    return lab


@pytest.fixture(scope="module")
def server(lab: SwitchLab) -> Iterator[ServerUnderTest]:
    with served(lab, lab.directory.parent) as started:
        yield started


def invoke(
    server: ServerUnderTest, query: str, params: Any = None, actor: str = "bo", **headers: str
) -> Answer:
    body = {} if params is None else {"params": params}
    path = f"/graphs/kb/queries/{query}"
    return server.ask("POST", path, body, {**token(actor), **headers})


def due(answer: Answer) -> dict[str, int | None]:
    assert answer.status == 200, answer.body
    return {row["t.name"]: row["due"] for row in answer.json["rows"]}


def apply_and(lab: SwitchLab, act: Callable[[], None]) -> None:
    """Apply; what is done in between finds the new schema and the old ledger."""
    done: list[Failpoint] = []

    def hook(point: Failpoint) -> None:
        if point is Failpoint.CLUSTER_AFTER_SCHEMA and not done:
            done.append(point)
            act()

    with hooked(hook):
        report = lab.apply()
    assert report.is_converged, report.diagnostics
    assert done


class Later:
    """A request that is answered some time."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._replies: list[Answer] = []
        self._thread = threading.Thread(target=lambda: self._replies.append(ask()))
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def answer(self) -> Answer:
        self._thread.join(60)
        return self._replies[0]


def follow(lab: SwitchLab, server: ServerUnderTest) -> None:
    until(lambda: ready(server)["revision"] == revision(lab))


# -- the window, held open -------------------------------------------------------------------------


def test_reads_go_on_with_the_same_rows_until_the_switch(lab, server):
    """Nothing but the schema has changed, so the state before it has the same rows."""
    before = due(invoke(server, "due"))
    lab.rename()

    def act() -> None:
        assert [due(invoke(server, "due")) for _ in range(10)] == [before] * 10
        paged = server.ask("POST", "/graphs/kb/queries/due", {"page_size": 2}, token("bo"))
        assert list(due(paged)) == ["a", "b"]
        # The old policy does not fit the new schema: it still decides about the same rows.
        assert due(invoke(server, "due", actor="cy")) == {"a": before["a"]}
        names = invoke(server, "names", actor="cy").json["rows"]
        assert names == [{"t.name": "a"}]

    apply_and(lab, act)
    follow(lab, server)
    assert due(invoke(server, "due")) == before
    assert due(invoke(server, "due", actor="cy")) == {"a": before["a"]}


def test_a_client_that_knows_of_the_change_or_of_later_writes_waits_for_the_switch(lab, server):
    before = due(invoke(server, "due"))
    lab.rename()
    waiting: list[Later] = []
    text = f'query set() {{ update Task set {{ {lab.column}: 9 }} where name = "c" }}'

    def act() -> None:
        with lab.open() as graph:
            change = graph.commits()[0].commit_id
        headers = {"Omnigraph-Commit": change}
        waiting.append(Later(lambda: invoke(server, "due", **headers)))
        assert due(invoke(server, "due")) == before
        written = server.ask("POST", "/graphs/kb/mutate", {"query": text}, token("bo"))
        assert written.status == 200, written.body
        # The state before the change lacks this row now, with or without its commit.
        waiting.append(Later(lambda: invoke(server, "due")))
        headers = {"Omnigraph-Commit": written.headers["omnigraph-commit"]}
        waiting.append(Later(lambda: invoke(server, "due", **headers)))
        assert not any(later.is_over for later in waiting)

    apply_and(lab, act)
    for later in waiting[1:]:
        assert due(later.answer) == {**before, "c": 9}
    assert due(waiting[0].answer)["a"] == before["a"]


def test_a_stored_mutation_waits_and_is_made_once(lab, server):
    lab.rename()
    waiting: list[Later] = []

    def act() -> None:
        waiting.append(Later(lambda: invoke(server, "move", {"name": "a", "to": 0})))

    apply_and(lab, act)
    moved = waiting[0].answer
    assert (moved.status, moved.json["affected_nodes"]) == (200, 1), moved.body
    assert due(invoke(server, "due"))["a"] == 0
    with lab.open() as graph:
        kinds = [commit.kind for commit in graph.commits()][:2]
    assert kinds == ["mutation", "schema"]


def test_an_agent_waits_for_the_switch(lab, server):
    lab.rename()
    waiting: list[Later] = []
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "due"}}
    headers = {**token("bo"), "Accept": "application/json, text/event-stream"}

    def act() -> None:
        ask = server.ask
        waiting.append(Later(lambda: ask("POST", "/graphs/kb/mcp", call, headers)))

    apply_and(lab, act)
    result = waiting[0].answer.json["result"]
    assert not result.get("isError"), result
    assert len(result["structuredContent"]["rows"]) == 3


def test_the_policy_of_the_next_generation_decides_about_those_who_waited(lab, server):
    lab.rename()
    rules = (lab.directory / "kb.policy.yaml").read_text()
    lab.write("kb.policy.yaml", rules.replace("[ana, bo]", "[ana]"))
    waiting: list[Later] = []

    def act() -> None:
        waiting.append(Later(lambda: invoke(server, "move", {"name": "b", "to": 7})))

    before = due(invoke(server, "due"))
    apply_and(lab, act)
    assert waiting[0].answer.status == 404, waiting[0].answer.body
    assert due(invoke(server, "due", actor="ana")) == before
    lab.write("kb.policy.yaml", rules)
    assert deploy(server, lab.files).json["in_force"] is True


def test_new_text_is_not_served_before_its_schema(lab, server):
    """The migration is refused, so the query that needs it is not published either."""
    before = due(invoke(server, "due"))
    old = {name: (lab.directory / name).read_text() for name in lab.files}
    lab.edit("kb.pg", "}", "  owner: String\n}")
    lab.edit("queries/due.gq", "$t.name,", "$t.name, $t.owner,")
    report = lab.apply()
    assert "schema_apply_failed" in [entry.code for entry in report.diagnostics]
    follow(lab, server)
    assert due(invoke(server, "due")) == before
    for name, text in old.items():
        lab.write(name, text)
    assert lab.apply().is_converged


def test_nobody_waits_for_a_switch_that_does_not_come(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("omnigraph.server.switching.time.monotonic", lambda: now[0])
    fit = SchemaFit(StoredQueries())
    assert fit.seconds_left("new") == SWITCH_SECONDS
    now[0] += SWITCH_SECONDS - 1
    assert fit.seconds_left("new") == 1
    now[0] += 1000
    assert fit.seconds_left("new") == 0
    assert fit.seconds_left("newer") == SWITCH_SECONDS


# -- readers all the time --------------------------------------------------------------------------


def apply_under_readers(
    lab: SwitchLab, server: ServerUnderTest, applies: int, clients: int
) -> Readers:
    with Readers(server, clients) as readers:
        readers.advance()
        for number in range(applies):
            lab.replace() if number % 3 == 2 else lab.rename()
            if number % 2:
                assert lab.apply().is_converged
            else:
                answer = deploy(server, lab.files)
                assert answer.json["outcome"] == "converged", answer.body
        follow(lab, server)
        readers.advance()
    assert readers.failed == []
    return readers


def test_no_read_fails_while_properties_are_renamed_and_dropped(lab, server):
    assert sum(apply_under_readers(lab, server, 4, 50).answered) > 100
    assert json.loads(invoke(server, "due").body)["row_count"] == 3


@pytest.mark.slow
def test_no_read_fails_in_sixty_renames_and_drops(tmp_path):
    lab = SwitchLab(tmp_path / "lab")
    lab.applied()
    lab.fill()
    with served(lab, tmp_path) as server:
        apply_under_readers(lab, server, 60, 50)
