"""A project in the size of real ones, as its people run it: files, commands, a server, readers.

The schema and the queries are those of the language tests: a network of botanical gardens. The
seed has the habits of real ones: every row carries its key a second time as ``id``, edges have an
empty ``data``, times end in seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lang.test_real_projects import query_source, schema_source
from tests.server.processes import Answer, ServerUnderTest, until

PROGRAMS = Path(sys.executable).parent
ACTORS = ("olga", "cora", "carl", "gus", "gwen", "vera", "abel")
TOKENS = {actor: f"{actor}-secret-{number}" for number, actor in enumerate(ACTORS)}
CONFIG = """\
# The network of gardens ─ one graph, its queries, who may do what.
version: 1
metadata: { name: gardens }
providers:
  embedding:
    words: { kind: mock, model: mini }
graphs:
  gardens:
    schema: gardens.pg
    queries: queries/
    embedding_provider: words
policies:
  people: { file: people.policy.yaml, applies_to: [gardens] }
  server: { file: server.policy.yaml, applies_to: [cluster] }
"""
PEOPLE = """\
version: 2
groups:
  curators: [cora, carl]
  gardeners: [gus, gwen]
  visitors: [vera]
  apprentices: [abel]
protected_branches: [main]
rules:
  - id: curators
    allow: { actors: { group: curators }, actions: [read, change, export], branch_scope: any }
  - id: curators-publish
    allow: { actors: { group: curators }, actions: [branch_merge], target_branch_scope: protected }
  - id: gardeners-read
    allow: { actors: { group: gardeners }, actions: [read], branch_scope: any }
  - id: gardeners-draft
    allow: { actors: { group: gardeners }, actions: [change], branch_scope: unprotected }
  - id: gardeners-fork
    allow:
      actors: { group: gardeners }
      actions: [branch_create]
      target_branch_scope: unprotected
  - id: apprentices-read
    allow: { actors: { group: apprentices }, actions: [read], branch_scope: any }
  - id: staff-queries
    allow: { actors: { group: curators }, actions: [invoke_query] }
  - id: gardeners-queries
    allow: { actors: { group: gardeners }, actions: [invoke_query] }
  - id: apprentices-queries
    allow: { actors: { group: apprentices }, actions: [invoke_query] }
  - id: visitors-queries
    allow:
      actors: { group: visitors }
      actions: [invoke_query, read]
      queries: [gardens_all, get_garden, garden_beds]
rows:
  - { id: staff, actors: { group: curators }, types: ["*"] }
  - { id: gardeners, actors: { group: gardeners }, types: ["*"] }
  - { id: apprentices, actors: { group: apprentices }, types: ["*"] }
  - { id: visitors, actors: { group: visitors }, types: [Garden, Bed, InGarden] }
"""
APPRENTICES = """\
  - id: apprentices-read
    allow: { actors: { group: apprentices }, actions: [read], branch_scope: any }
"""
"""The right that the policy change takes away."""
SERVER = """\
version: 1
groups: { operators: [olga] }
rules:
  - id: operators
    allow: { actors: { group: operators }, actions: [graph_list, config_manage, admin] }
"""
READS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("cora", "garden_species", {"slug": "gd-1"}),
    ("cora", "threats_to_my_beds", {"slug": "gw-3"}),
    ("carl", "beds_by_kind", {"kind": "glasshouse-1"}),
    ("carl", "unplaced_plants", {}),
    ("gus", "plant_species", {"slug": "pl-7"}),
    ("gus", "find_species", {"q": "moss"}),
    ("gwen", "walk_3", {"slug": "gd-1"}),
    ("gwen", "plants_since", {"date": "2001-05-01"}),
    ("vera", "gardens_all", {}),
    ("vera", "get_garden", {"slug": "gd-2"}),
)
"""What people ask all day."""


AD_HOC = "query mine() { match { $g: Garden } return { $g.slug } }"
"""A query that is not stored."""


def seed() -> Iterator[dict[str, Any]]:
    """About 350 rows."""

    def node(kind: str, slug: str, /, **values: Any) -> dict[str, Any]:
        return {"type": kind, "data": {"id": slug, "slug": slug, **values}}

    def edge(kind: str, source: str, target: str, /, **values: Any) -> dict[str, Any]:
        return {"edge": kind, "from": source, "to": target, "data": values}

    made = "2024-03-01T08:30:00Z"
    kinds = ("border", "rockery", "pond", "glasshouse-1", "glasshouse-2", "nursery", "meadow")
    for g in range(4):
        name = f"Garden № {g}"
        yield node("Garden", f"gd-{g}", name=name, type="seed-bank", createdAt=made, tags=["a"])
    for s in range(30):
        text = f"A fern that likes shade and moss, kind {s}" if s % 3 else f"Dry slopes, kind {s}"
        status = "vulnerable" if s % 2 else "least-concern"
        yield node("Species", f"sp-{s}", name=f"Species {s}", status=status, description=text)
    for b in range(24):
        kind = kinds[b % 7]
        yield node(
            "Bed",
            f"bd-{b}",
            name=f"Bed {b}",
            kind=kind,
            path=f"a/{b}",
            current=True,
            createdAt=made,
        )
        yield edge("InGarden", f"bd-{b}", f"gd-{b % 4}")
    for p in range(60):
        times = {"since": f"200{p % 10}-04-01", "createdAt": made, "updatedAt": made}
        kind = "tree" if p % 2 else "fern"
        yield node(
            "Plant", f"pl-{p}", label=f"Plant {p}", kind=kind, pruned=["2020-01-02"], **times
        )
        yield edge("OfSpecies", f"pl-{p}", f"sp-{p % 30}")
        if p % 10:
            yield edge("GrowsIn", f"pl-{p}", f"bd-{p % 24}", primary=True)
    for w in range(8):
        yield node("Gardener", f"gw-{w}", name=f"Gardener {w}", level="senior", email=f"{w}@g.org")
        yield edge("Tends", f"gw-{w}", f"bd-{w}", since="2020-02-02")
        yield edge("WorksIn", f"gw-{w}", f"gd-{w % 4}", role="it's fine", current=True)
    for x in range(6):
        yield node("Pest", f"ps-{x}", name=f"Pest {x}", type="fungus")
        yield edge("Attacks", f"ps-{x}", f"sp-{x}")
    for e in range(3):
        when = f"202{e}-06-01T00:00:00Z"
        yield node("Expedition", f"ex-{e}", name=f"Trip {e}", when=when, phase=f"phase-{e % 2 + 1}")


class Gardens:
    """The directory of the project, and what an operator does with it."""

    def __init__(self, directory: Path, environ: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.work = directory.parent
        self.environ = environ or {}

    # -- files -------------------------------------------------------------------------------

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.directory / name).read_text("utf-8")
        assert old in text, (name, old)
        self.write(name, text.replace(old, new, 1))

    def write_project(self, storage: str | None = None) -> None:
        self.write("cluster.yaml", CONFIG if storage is None else f"{CONFIG}storage: {storage}\n")
        self.write("gardens.pg", schema_source().text)
        own, *tail = query_source().text.split("\n// Garden → Donor\n")
        self.write("queries/questions.gq", own)
        self.write("queries/links.gq", "// Garden → Donor\n".join(["", *tail]))
        self.write("people.policy.yaml", PEOPLE)
        self.write("server.policy.yaml", SERVER)
        lines = [json.dumps(row, ensure_ascii=False) for row in seed()]
        (self.work / "seed.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        (self.work / "tokens.json").write_text(json.dumps(TOKENS))

    # -- commands ----------------------------------------------------------------------------

    def run(self, *arguments: str, actor: str | None = None) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, **self.environ, "OMNIGRAPH_CONFIG": str(self.work / "none.yaml")}
        if actor is not None:
            environ["OMNIGRAPH_BEARER_TOKEN"] = TOKENS[actor]
        return subprocess.run(
            [str(PROGRAMS / "omnigraph"), *arguments],
            cwd=self.work,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def works(self, *arguments: str, actor: str | None = None) -> str:
        """The output of a command that must succeed."""
        done = self.run(*arguments, actor=actor)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def cluster(self, command: str, *arguments: str, actor: str | None = None) -> str:
        config = ("--config", str(self.directory))
        return self.works("cluster", command, *arguments, *config, actor=actor)

    @contextmanager
    def served(self, name: str = "server", workers: int = 2) -> Iterator[ServerUnderTest]:
        command = [str(PROGRAMS / "omnigraph-server"), "--cluster", str(self.directory)]
        command += ["--bind", "127.0.0.1:0", "--workers", str(workers)]
        tokens = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(self.work / "tokens.json")}
        log = self.work / f"{name}.log"
        with ServerUnderTest(command, log, {**self.environ, **tokens}) as server:
            yield server.await_listening()

    def revision(self) -> int:
        document = json.loads(self.cluster("status", "--json"))
        number: int = document["state_observations"]["state_revision"]
        return number


def invoke(
    server: ServerUnderTest, actor: str, query: str, params: dict[str, Any] | None = None
) -> Answer:
    path = f"/graphs/gardens/queries/{query}"
    return server.ask("POST", path, {"params": params or {}}, bearer(actor))


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


def ready(server: ServerUnderTest) -> Any:
    return server.ask("GET", "/readyz").json


@dataclass
class Reader:
    """One client that asks the same question all day, on one connection."""

    server: ServerUnderTest
    actor: str
    query: str
    params: dict[str, Any]
    replies: list[tuple[float, float, int]] = field(default_factory=list)
    """When each was asked and answered, and its status."""
    failures: list[Any] = field(default_factory=list)
    """What was neither an answer nor a refusal of the policy."""

    def run(self, end: threading.Event) -> None:
        connection = self.server.connect()
        path, document = f"/graphs/gardens/queries/{self.query}", {"params": self.params}
        if self.query == AD_HOC:
            path, document = "/graphs/gardens/query", {"query": self.query}
        body = json.dumps(document).encode()
        headers = {**bearer(self.actor), "Content-Type": "application/json"}
        # People think between two questions.
        while not end.wait(0.4):
            began = time.monotonic()
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except OSError as error:
                self.failures.append(error)
                return
            self.replies.append((began, time.monotonic(), answer.status))
            if answer.status != 200 and (answer.status != 403 or self.actor != "abel"):
                self.failures.append((self.actor, self.query, answer.status, content))
        connection.close()


class Readers:
    """Fifty people at once; every fifth is the apprentice who loses a right some day."""

    def __init__(self, *servers: ServerUnderTest, count: int = 50) -> None:
        self.all = [
            Reader(servers[number % len(servers)], *self._question(number))
            for number in range(count)
        ]
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=reader.run, args=(self._end,)) for reader in self.all
        ]

    def _question(self, number: int) -> tuple[str, str, dict[str, Any]]:
        if number % 5 == 4:
            return "abel", (AD_HOC, "gardens_all")[number % 2], {}
        return READS[number % len(READS)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def advance(self) -> None:
        """Wait until everybody has got an answer to a question asked from now on."""
        now = time.monotonic()

        def have_replies() -> bool:
            return all(reader.replies and reader.replies[-1][0] > now for reader in self.all)

        until(lambda: self.failures or have_replies(), "replies for every reader")

    @property
    def failures(self) -> list[Any]:
        return [failure for reader in self.all for failure in reader.failures]

    def of(self, actor: str) -> list[Reader]:
        return [reader for reader in self.all if reader.actor == actor]

    def check_right_taken(self, before: float, after: float) -> None:
        """Abel was never refused before the policy was sent, and always after it was in force."""
        for reader in self.of("abel"):
            for began, ended, status in reader.replies:
                if ended < before:
                    assert status == 200
                if began > after:
                    assert status == 403
            statuses = [status for _, _, status in reader.replies]
            # Once refused, always refused: no process went back.
            assert statuses == sorted(statuses)
            assert {statuses[0], statuses[-1]} == {200, 403}
