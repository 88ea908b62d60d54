"""Every command on data, embedded and through a server: the same stdout, the same exit code.

A session is a list of commands that are run on two copies of one graph: on the storage of the one,
and through a server of the other. Addresses, ids and times are replaced before the outputs are
compared.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.remote import SERVED_COMMANDS
from tests.cli.test_data_commands import DATA, QUERIES
from tests.cli.test_data_commands import SCHEMA as PLAIN_SCHEMA
from tests.cli.test_every_command import CASES
from tests.cli.workspace import Workspace
from tests.sampling import rotating
from tests.server.serving import serving

pytestmark = pytest.mark.rotates(6)

SCHEMA = PLAIN_SCHEMA.replace("  tags:", "  photo: Blob?\n  tags:")
FORMATS = ("table", "kv", "csv", "jsonl", "json")
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age, $p.tags } order { $p.name } }"
NOBODY = 'query q() { match { $p: Person { name: "No" } } return { $p.name, $p } }'
PAIRS = "query q() { match { $a: Person $a knows $b } return { $a, $b.name as friend } }"
NODES = "query q() { match { $p: Person } return { $p } order { $p.name desc } }"
STORED = "query adults($age: I32) { match { $p: Person $p.age >= $age } return { $p.name } }"
_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
_CURSOR = re.compile(r"\bWz[0-9A-Za-z_-]{20,}")
_TIME = re.compile(r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC")
_MEASURED = re.compile(r'("?expected|"?profile).*', re.DOTALL)
_MICROS = re.compile(r"\b1[0-9]{15}\b")


@dataclass
class Side:
    """One of the two copies: how it is addressed, and the ids that it has shown."""

    workspace: Workspace
    address: tuple[str, ...]
    uri: str
    seen: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        words = [self._own(word) for word in arguments]
        done = self.workspace.run(*words, *self.address, stdin=stdin)
        return done.returncode, self._plain(done.stdout), done.stderr

    def _own(self, word: str) -> str:
        """A word with the ids of this side, for those such as ``<id-3>``."""
        for own, shown in self.seen.items():
            word = word.replace(shown, own)
        return word

    def _plain(self, text: str) -> str:
        text = text.replace(self.uri, "<graph>")
        for own in _ID.findall(text):
            self.seen.setdefault(own, f"<id-{len(self.seen)}>")
            text = text.replace(own, self.seen[own])
        for own in _CURSOR.findall(text):
            self.seen.setdefault(own, f"<cursor-{len(self.seen)}>")
            text = text.replace(own, self.seen[own])
        return _TIME.sub("<time>", _MICROS.sub("<time>", text))


@dataclass
class Both:
    """The same commands on either side."""

    embedded: Side
    served: Side

    def run(
        self, *arguments: str, stdin: bytes = b"", hides: re.Pattern[str] | None = None
    ) -> tuple[int, str]:
        code, out, err = self.embedded.run(*arguments, stdin=stdin)
        ours = self.served.run(*arguments, stdin=stdin)
        if hides is not None:
            out, ours = hides.sub("", out), (ours[0], hides.sub("", ours[1]), ours[2])
        assert ours[:2] == (code, out), (arguments, ours, err)
        assert ("Error: " in ours[2]) == ("Error: " in err), (arguments, ours[2], err)
        return code, out

    def works(
        self, *arguments: str, stdin: bytes = b"", hides: re.Pattern[str] | None = None
    ) -> str:
        code, out = self.run(*arguments, stdin=stdin, hides=hides)
        assert code == 0, (arguments, out)
        return out


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parity")
    (folder / "d.jsonl").write_text(DATA, "utf-8")
    (folder / "q.gq").write_text(QUERIES, "utf-8")
    (folder / "p.json").write_text('{"name": "Ana"}', "utf-8")
    (folder / "more.csv").write_text("name,age\nEve,20\n", "utf-8")
    (folder / "bad.jsonl").write_text('{"type":"Person","data":{"age":1}}\n', "utf-8")
    (folder / "next.pg").write_text(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    (folder / "wrong.pg").write_text("node {", "utf-8")
    (folder / "strict.pg").write_text(SCHEMA.replace("age: I32?", "age: I32"), "utf-8")
    (folder / "picture").write_bytes(bytes(range(256)) * 5)
    with Graph.init(folder / "e.omni", SCHEMA) as graph:
        graph.load(folder / "d.jsonl")
        graph.branches.create("side")
        graph.mutate('query a() { insert Person { name: "Side" } }', branch="side")
        graph.mutate('query a() { insert Person { name: "Main" } }')
    shutil.copytree(folder / "e.omni", folder / "s.omni")
    return folder


@pytest.fixture(scope="module")
def kept(original) -> Iterator[Both]:
    """Two copies that are only read."""
    yield from both(original)


@pytest.fixture
def changed(original, tmp_path) -> Iterator[Both]:
    """Two copies of its own for a test that writes."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    yield from both(tmp_path)


def both(folder: Path) -> Iterator[Both]:
    workspace = Workspace(folder)
    with (
        Graph.open(folder / "s.omni", local_files=False) as graph,
        serving({"kb": graph}, queries={"adults": STORED}) as server,
    ):
        url = f"http://127.0.0.1:{server.port}"
        served = Side(workspace, ("--server", url, "--graph", "kb"), f"{url}/graphs/kb")
        yield Both(Side(workspace, ("--store", "e.omni"), "e.omni"), served)


# -- reading --------------------------------------------------------------------------------------

READS = [("query", "-e", PEOPLE, "--format", format) for format in FORMATS] + [
    ("query", "-e", text, "--format", format)
    for text in (NOBODY, PAIRS, NODES)
    for format in FORMATS
]


@pytest.mark.parametrize("arguments", rotating([(read,) for read in READS], 8, "parity formats"))
def test_rows_look_the_same_in_every_format(kept, arguments):
    kept.works(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-e", PEOPLE),
        ("-e", NOBODY),
        ("-e", PEOPLE, "--branch", "main"),
        ("-e", PEOPLE, "--max-rows", "1000"),
        ("-e", NODES, "--timeout", "60"),
    ],
)
def test_streamed_lines_look_the_same(kept, arguments):
    kept.works("query", *arguments, "--format", "jsonl")


def test_too_many_streamed_lines_are_refused_in_the_same_way(kept):
    arguments = ("query", "-e", PEOPLE, "--format", "jsonl", "--max-rows", "1")
    embedded, served = (side.run(*arguments) for side in (kept.embedded, kept.served))
    assert embedded == served
    assert (served[0] != 0, served[1]) == (True, "")


@pytest.mark.parametrize("format", ["arrow", "parquet", "jsonl"])
def test_binary_rows_are_the_same_bytes(kept, format):
    content = []
    for side in (kept.embedded, kept.served):
        assert side.run("query", "-e", PEOPLE, "--format", format, "--out", "rows")[:2] == (0, "")
        content.append((side.workspace.directory / "rows").read_bytes())
    assert content[0] == content[1]


def test_queries_by_file_name_parameters_and_state(kept):
    kept.works("query", "one", "--query", "q.gq", "--params", '{"name": "Bo"}')
    kept.works("query", "one", "--query", "q.gq", "--params-file", "p.json", "--json")
    kept.works("query", "--query", "-", stdin=PEOPLE.encode())
    kept.works("query", "-e", PEOPLE, "--branch", "side")
    assert "Cy" in kept.works("query", "-e", PEOPLE, "--timeout", "30", "--max-rows", "100")
    kept.works("query", "-e", PEOPLE, "--out", "rows.txt")
    listed = kept.works("commit", "list")
    last = listed.split()[0]
    assert last == "<id-0>"
    kept.works("commit", "list", "--json")
    assert kept.works("query", "-e", PEOPLE, "--snapshot", last).startswith("4 rows from snapshot")
    kept.works("query", "-e", PEOPLE, "--snapshot", last, "--json")


def test_history_tables_schema_and_exports(kept):
    for arguments in (
        ("commit", "list", "--branch", "side"),
        ("commit", "list", "--limit", "1", "--json"),
        ("commit", "list", "--filter", "branch=side", "--branch", "side", "--json"),
        ("snapshot",),
        ("snapshot", "--branch", "side", "--json"),
        ("branch", "list"),
        ("branch", "list", "--json"),
        ("schema", "show"),
        ("schema", "show", "--json"),
        ("export",),
        ("export", "--branch", "side", "--type", "Person"),
        ("export", "--table", "edge:Knows", "--type", "Person"),
    ):
        kept.works(*arguments)
    last = kept.works("commit", "list").split()[0]
    kept.works("commit", "show", last)
    kept.works("commit", "show", last, "--json")
    kept.works("export", "--snapshot", last)
    kept.works("export", "--out", "all.jsonl")


def test_the_history_of_changes(kept):
    kept.works("commit", "list", "--branch", "side")
    last = kept.works("commit", "list").split()[0]
    for arguments in (
        ("log", "--no-pager"),
        ("log", "--all", "--no-pager", "--oneline", "--stat"),
        ("log", "--all", "--json", "--stat"),
        ("log", "--type", "Person", "--no-pager"),
        ("log", "--branch", "side", "--limit", "1", "--json"),
        ("commit", "changes", last),
        ("commit", "changes", last, "--json"),
        ("diff", "side", "--no-pager"),
        ("diff", "side", "main", "--json"),
        ("diff", "main", last, "--summary", "--no-pager"),
        ("diff", "side", "--type", "Knows", "--no-pager"),
        ("diff", "side", "--op", "delete", "--json"),
        ("changes", "poll"),
        ("changes", "poll", "--json"),
        ("changes", "poll", "--branch", "side", "--start", "now", "--json"),
        ("changes", "poll", "--type", "Person", "--kind", "node", "--op", "insert", "--json"),
        ("changes", "poll", "--limit", "1", "--json"),
        ("changes", "poll", "--start", f"after:{last}"),
        ("changes", "baseline", "--out", "base.jsonl"),
        ("changes", "baseline", "--out", "base.jsonl", "--branch", "side", "--json"),
        ("blame", "Person", "Ana"),
        ("blame", "node:Person", "Main", "--json"),
        ("explain", "add", "--query", "q.gq"),
        ("tag", "list"),
        ("tag", "list", "--json"),
    ):
        kept.works(*arguments)
    assert kept.run("diff", "side", "--exit-code", "--no-pager")[0] == 1
    # The server has statistics and rows in memory that a new process has not.
    for arguments in (
        ("people", "--query", "q.gq"),
        ("one", "--query", "q.gq", "--json"),
        ("-e", NOBODY, "--analyze"),
        ("-e", NOBODY, "--analyze", "--json"),
    ):
        kept.works("explain", *arguments, hides=_MEASURED)


def test_a_page_of_a_commit_continues_the_one_before(kept):
    first = kept.works("commit", "list").split("\n")[-3].split()[0]
    arguments = ("commit", "changes", first, "--limit", "2")
    pages = [kept.works(*arguments)]
    while token := re.search("next_page_token: (<cursor-[0-9]+>)", pages[-1]):
        pages.append(kept.works(*arguments, "--page-token", token[1]))
    assert len(pages) > 1


FAILS = [
    ("commit", "changes", "01NO"),
    ("diff", "no"),
    ("diff", "main", "side", "--type", "No"),
    ("changes", "poll", "--branch", "no"),
    ("changes", "poll", "--cursor", "x"),
    ("changes", "poll", "--start", "then"),
    ("changes", "poll", "--start", "after:01NO"),
    ("changes", "poll", "--type", "No"),
    ("changes", "baseline", "--out", "base.jsonl", "--branch", "no"),
    ("blame", "No", "Ana"),
    ("blame", "Person", "Nobody"),
    ("revert", "01NO"),
    ("cherry-pick", "01NO"),
    ("tag", "create", "a b"),
    ("tag", "create", "v1", "--commit", "01NO"),
    ("tag", "create", "v1", "--branch", "no"),
    ("tag", "delete", "no"),
    ("explain", "-e", "query q("),
    ("explain", "-e", PEOPLE, "--branch", "no"),
    ("log", "--branch", "no"),
    ("log", "--type", "No"),
    ("query", "-e", PEOPLE, "--tag", "no"),
    ("query", "-e", PEOPLE, "--at", "2001-01-01"),
    ("query", "-e", "query q() { match { $p: No } return { $p } }"),
    ("query", "-e", "query q("),
    ("query", "-e", ""),
    ("query", "nope", "--query", "q.gq"),
    ("query", "--query", "q.gq"),
    ("query", "--query", "missing.gq"),
    ("query", "one", "--query", "q.gq"),
    ("query", "one", "--query", "q.gq", "--params", '{"name": 5}'),
    ("query", "-e", PEOPLE, "--branch", "no"),
    ("query", "-e", PEOPLE, "--branch", ""),
    ("query", "-e", PEOPLE, "--snapshot", "01NO"),
    ("query", "-e", PEOPLE, "--max-rows", "1"),
    ("query", "add", "--query", "q.gq", "--params", '{"name": "x"}'),
    ("mutate", "people", "--query", "q.gq"),
    ("mutate", "add", "--query", "q.gq", "--params", '{"name": "x"}', "--branch", "no"),
    ("mutate", "add", "--query", "q.gq", "--params", '{"name": "x"}', "--if-commit", "01NO"),
    ("load", "--data", "missing.jsonl", "--mode", "merge"),
    ("load", "--data", "bad.jsonl", "--mode", "merge"),
    ("load", "--data", "d.jsonl", "--mode", "merge", "--branch", "no"),
    ("load", "--data", "d.jsonl", "--mode", "append"),
    ("ingest", "--data", "missing.jsonl"),
    ("branch", "create", "side"),
    ("branch", "create", "a..b"),
    ("branch", "create", "x", "--from", "no"),
    ("branch", "delete", "main", "--yes"),
    ("branch", "delete", "no", "--yes"),
    ("branch", "merge", "no"),
    ("branch", "merge", "main"),
    ("commit", "list", "--branch", "no"),
    ("commit", "list", "--filter", "x"),
    ("commit", "show", "01NO"),
    ("snapshot", "--branch", "no"),
    ("export", "--type", "No"),
    ("export", "--table", "node:No"),
    ("export", "--branch", "no"),
    ("blob", "get", "node", "Person", "No", "photo"),
    ("blob", "stat", "node", "Person", "Bo", "photo"),
    ("blob", "stat", "edge", "Person", "Ana", "photo"),
    ("blob", "get", "node", "Person", "Ana", "age"),
    ("blob", "put", "node", "Person", "No", "photo", "--file", "picture"),
    ("blob", "put", "node", "Person", "Ana", "photo", "--file", "missing"),
    ("blob", "put", "node", "Person", "Ana", "photo", "--file", "picture", "--if-digest", "0"),
    ("blob", "delete", "node", "Person", "No", "photo"),
    ("optimize", "--branch", "no"),
    ("index", "status", "--branch", "no"),
    ("index", "rebuild", "Person", "no"),
    ("verify", "--branch", "no"),
    ("repair", "--branch", "no"),
    ("cleanup", "--confirm"),
    ("schema", "plan", "--schema", "missing.pg"),
    ("schema", "plan", "--schema", "wrong.pg"),
    ("schema", "apply", "--schema", "next.pg", "--dry-run"),
    ("schema", "apply", "--schema", "missing.pg"),
    ("schema", "apply", "--schema", "wrong.pg"),
    ("schema", "apply", "--schema", "next.pg"),
]


def test_a_failure_has_the_same_exit_code(kept):
    codes = {kept.run(*arguments)[0] for arguments in FAILS}
    assert codes == {1, 4}


def test_an_error_in_a_text_shows_the_same_lines(kept):
    arguments = ("query", "-e", "query q() { match { $p: No  $q: Nope } return { $p } }")
    assert kept.embedded.run(*arguments) == kept.served.run(*arguments)
    kept.embedded.workspace.write(
        "wrong.gq", "query q() {\n  match { $p: No }\n  return { $p }\n}\n"
    )
    arguments = ("query", "--query", "wrong.gq")
    assert kept.embedded.run(*arguments) == kept.served.run(*arguments)


# -- writing --------------------------------------------------------------------------------------


def test_a_session_of_writes(changed):
    run = changed.works
    run("mutate", "add", "--query", "q.gq", "--params", '{"name": "Dee"}')
    run("mutate", "add", "--query", "q.gq", "--params", '{"name": "Di"}', "--json")
    last = run("commit", "list", "--limit", "1").split()[0]
    add = ("mutate", "add", "--query", "q.gq", "--params", '{"name": "If"}', "--if-commit", last)
    run(*add)
    assert changed.run(*add)[0] == 4
    once = ("mutate", "add", "--query", "q.gq", "--params", '{"name": "Once"}', "--json")
    assert run(*once, "--idempotency-key", "k") == run(*once, "--idempotency-key", "k")
    run("mutate", "birthday", "--query", "q.gq", "--params", '{"name": "No", "age": 1}')
    run("branch", "create", "review/a")
    run("branch", "create", "old", "--from", "side", "--json")
    load = ("--data", "d.jsonl", "--mode")
    run("load", *load, "merge", "--branch", "review/a")
    run("load", *load, "merge", "--branch", "fork", "--from", "main", "--json")
    run("load", *load, "overwrite", "--branch", "fork", "--yes", "--json")
    run("load", *load, "merge", "--dry-run", "--json")
    run("load", "--data", "bad.jsonl", "--mode", "merge", "--max-rejects", "1", "--no-indexes")
    run("load", "--data", "-", "--mode", "merge", "--json", stdin=DATA.encode())
    run("load", "--data", "more.csv", "--type", "more.csv=Person", "--mode", "merge")
    run("ingest", "--data", "d.jsonl")
    run("ingest", "--data", "d.jsonl", "--branch", "fork2", "--json")
    run("branch", "merge", "side")
    run("branch", "merge", "side", "--json")
    once = ("branch", "merge", "fork2", "--json", "--delete-branch", "--idempotency-key", "m")
    assert run(*once) == run(*once)
    once = ("tag", "create", "v1", "--json", "--idempotency-key", "t")
    assert run(*once) == run(*once)
    run("branch", "delete", "old", "--yes")
    run("branch", "delete", "review/a", "--yes", "--json")
    run("branch", "list")
    run("commit", "list")
    run("snapshot", "--json")
    run("query", "-e", PEOPLE, "--json")


def test_conflicts_have_their_exit_code_and_lines(changed):
    update = ("mutate", "birthday", "--query", "q.gq", "--params")
    changed.works(*update, '{"name": "Ana", "age": 1}', "--branch", "side")
    changed.works(*update, '{"name": "Ana", "age": 2}')
    assert changed.run("branch", "merge", "side") == (3, "")
    errors = [s.run("branch", "merge", "side")[2] for s in (changed.embedded, changed.served)]
    assert errors[0].splitlines()[1:] == errors[1].splitlines()[1:]


def test_a_conflict_is_previewed_and_resolved(changed):
    update = ("mutate", "birthday", "--query", "q.gq", "--params")
    changed.works(*update, '{"name": "Ana", "age": 1}', "--branch", "side")
    changed.works(*update, '{"name": "Ana", "age": 2}')
    for arguments in (("--dry-run",), ("--dry-run", "--json"), ("--conflicts", "c.jsonl")):
        assert changed.run("branch", "merge", "side", *arguments)[0] == 3
    folder = changed.embedded.workspace.directory
    lines = (folder / "c.jsonl").read_text("utf-8")
    assert '"choice": null' in lines
    for name in ("theirs", "c.jsonl"):
        (folder / "c.jsonl").write_text(lines.replace('"choice": null', '"choice": {"age": 9}'))
        changed.works("branch", "merge", "side", "--resolve", name, "--dry-run", "--json")
    assert changed.run("branch", "merge", "side", "--resolve", "mine")[0] == 1
    changed.works("branch", "merge", "side", "--resolve", "c.jsonl", "--delete-branch", "--json")
    changed.works("query", "-e", PEOPLE, "--json")
    changed.works("log", "--no-pager", "--stat")
    changed.works("branch", "list")


def test_tags_and_single_commits(changed):
    run = changed.works
    first = run("commit", "list").split()[0]
    run("tag", "create", "v1")
    run("tag", "create", "old", "--commit", first, "--json")
    run("tag", "create", "of-side", "--branch", "side")
    assert changed.run("tag", "create", "v1")[0] == 1
    run("tag", "create", "v1", "--move", "--json")
    run("mutate", "add", "--query", "q.gq", "--params", '{"name": "Dee"}')
    last = run("commit", "list").split()[0]
    run("tag", "list")
    run("tag", "list", "--json")
    run("diff", "v1", "--no-pager")
    run("diff", "of-side", "v1", "--json")
    run("query", "-e", PEOPLE, "--tag", "v1")
    run("query", "-e", PEOPLE, "--tag", "of-side", "--json")
    run("query", "-e", PEOPLE, "--at", "2999-01-01", "--format", "csv")
    run("revert", last, "--dry-run", "--json")
    run("revert", last)
    run("revert", last, "--json")
    run("cherry-pick", last, "--dry-run")
    run("cherry-pick", last, "--branch", "side", "--json")
    run("query", "-e", PEOPLE, "--branch", "side")
    run("tag", "delete", "old")
    run("tag", "delete", "of-side", "--json")
    run("log", "--no-pager")


def test_a_schema_is_applied(changed):
    changed.works("branch", "delete", "side", "--yes")
    changed.works("schema", "apply", "--schema", "next.pg")
    changed.works("schema", "apply", "--schema", "next.pg", "--json")
    changed.works("schema", "show")
    changed.works("query", "-e", "query q() { match { $p: Person } return { $p.city } }")


def test_schemas_are_planned_and_previewed(changed):
    for arguments in (("--schema", "next.pg"), ("--schema", "strict.pg", "--allow-data-loss")):
        changed.works("schema", "plan", *arguments)
        changed.works("schema", "plan", *arguments, "--json")
    changed.works("branch", "delete", "side", "--yes")
    changed.works("schema", "apply", "--schema", "next.pg", "--dry-run", "--json")
    shown = changed.works("schema", "apply", "--schema", "strict.pg", "--dry-run")
    assert "! node:Person" in shown
    changed.works("schema", "apply", "--schema", "strict.pg", "--dry-run", "--json")
    changed.works("schema", "apply", "--schema", "strict.pg", "--values", '{"Person.age": 7}')
    changed.works("query", "-e", PEOPLE)


def test_a_session_of_maintenance(changed):
    run = changed.works
    run("index", "status")
    run("index", "ensure")
    run("index", "ensure", "--branch", "side")
    run("index", "rebuild", "Person", "id")
    run("optimize")
    run("optimize", "--if-needed", "--json")
    run("repair")
    run("repair", "--confirm", "--json")
    run("cleanup", "--keep", "1", "--dry-run")
    run("cleanup", "--keep", "1", "--confirm", "--yes", "--min-age", "1s")
    # The commits of jobs name them, which takes some bytes.
    size = re.compile(r"\([0-9.]+ KiB\)")
    assert "sound" in changed.run("verify", hides=size)[1]
    assert changed.run("verify", "--branch", "main", "--no-checksums", hides=size)[0] == 0


BLOB = ("node", "Person", "Ana", "photo")


def test_a_session_of_blobs(changed):
    run = changed.works
    run("blob", "put", *BLOB, "--file", "picture", "--if-null")
    assert changed.run("blob", "put", *BLOB, "--file", "picture", "--if-null")[0] == 4
    run("blob", "stat", *BLOB)
    run("blob", "stat", *BLOB, "--json")
    shown = run("blob", "stat", *BLOB, "--digest")
    digest = shown.split("digest: ")[1].split()[0]
    for out in ("a.bin", "b.bin"):
        run("blob", "get", *BLOB, "--out", out, "--offset", "1000")
    assert (changed.served.workspace.directory / "a.bin").read_bytes()[:3] == b"\xe8\xe9\xea"
    once = ("blob", "put", *BLOB, "--file", "-", "--json", "--idempotency-key", "k")
    assert run(*once, stdin=b"hi") == run(*once, stdin=b"hi")
    assert run("blob", "get", *BLOB) == "hi"
    assert changed.run("blob", "delete", *BLOB, "--if-digest", digest)[0] == 4
    run("blob", "delete", *BLOB)
    run("blob", "delete", *BLOB, "--json")


# -- the table of commands ------------------------------------------------------------------------


@pytest.mark.rotates(1)
def test_every_command_that_is_served_is_compared():
    """No command that works through a server is left out above."""
    text = Path(__file__).read_text("utf-8")
    words = {tuple(command.split()) for command in SERVED_COMMANDS}
    for command in words:
        joined = '", "'.join(command)
        assert f'"{joined}"' in text
    assert {" ".join(command) for command in words} <= set(CASES)
