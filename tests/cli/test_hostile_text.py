"""What people read holds no control character of a value, a name or a file: no command can be made
to clear a screen, set a title, reorder a line or forge one. What programs read is exact.

The graph under a hostile path holds hostile ids, values, actors, a branch and a tag, as another
program may have written them; every command shows them or fails over them.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from omnigraph import Graph, cli
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.program import show_engine_warnings
from omnigraph.cli.shell.completion import Completion
from omnigraph.cli.shell.session import Session
from omnigraph.cli.targets import GraphTarget
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import TagRow
from omnigraph.errors import InputError, NotFound
from omnigraph.escaping import escape, has_controls
from omnigraph.lang.diagnostics import Diagnostic, Phase, Source, Span
from omnigraph.logs import logger
from omnigraph.write.load.job import LoadDestination
from tests.cli.test_every_command import commands
from tests.cli.workspace import Workspace
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(2)

UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
FORGED = "FORGED"
EVERY = "".join(
    chr(code)
    for code in (
        *range(1, 0x20),
        *range(0x7F, 0xA0),
        0x61C,
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
)
HOSTILE = {
    "every": f"x{EVERY}\n{FORGED}",
    "clear": "x\x1b[2J\x1b[H",
    "title": "x\x1b]0;title\x07",
    "line": f"x\n{FORGED} commit",
    "return": f"x\r{FORGED}",
    "tab": f"x\t{FORGED}",
    "c1": "x\x9b2J",
    "delete": "x\x7f\x08",
    "bidi": "x\u202eevil\u202c\u2066y\u2069\u200e\u200f\u061c",
    "separators": f"x\u2028{FORGED}\u2029",
    "form": f"x\x0b\x0c\x1c\x1d\x1e\x85{FORGED}",
}
SCHEMA = """\
node Person {
  name: String @key
  note: String?
  photo: Blob?
}

edge Knows: Person -> Person
"""


def quoted(text: str) -> str:
    """A literal of the query language."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + plain.replace("\r", "\\r").replace("\t", "\\t") + '"'


def hostile_graph(path: Path, text: str) -> dict[str, str]:
    """A graph in which everything that can be is hostile."""
    ids: dict[str, str] = {}
    with (
        mock.patch("omnigraph.api.arguments.check_actor"),
        mock.patch("omnigraph.write.load.job.check_actor"),
        Graph.init(path, SCHEMA, durability="os", actor=text) as graph,
    ):
        photo = "base64:cGljdHVyZQ=="
        rows = [
            {"type": "Person", "data": {"name": text, "note": text, "photo": photo}},
            {"type": "Person", "data": {"name": "Bo", "note": text}},
            {"edge": "Knows", "from": text, "to": "Bo"},
        ]
        ids["COMMIT"] = str(graph.load(rows).commit_id)
        row = TagRow(text, ids["COMMIT"], 1, text)
        graph._handle.store.publisher.publish(
            graph._handle.store.manifest(None), Publication({}, others=[row])
        )
        graph.branches.create("side")
        change = (
            f"query c() {{ update Person set {{ note: {quoted(text + '2')} }} where note = %s }}"
        )
        source = change % quoted(text)
        ids["SIDE"] = str(graph.mutate(source, branch="side").commit_id)
        ids["LAST"] = str(graph.mutate(source.replace('2"', '3"')).commit_id)
    return ids


class Hostile:
    """A directory with such a graph under such a path, and the command run in it."""

    def __init__(self, directory: Path, text: str) -> None:
        self.text = text
        self.workspace = Workspace(directory)
        self.name = text.replace("/", "_")
        # Lance cannot have control characters in the path of a graph.
        self.graph = re.sub("[\x00-\x1f\x7f-\x9f]", "", self.name)
        self.ids = hostile_graph(directory / f"{self.graph}.omni", text)
        shutil.copytree(directory / f"{self.graph}.omni", directory / f"{self.graph}.w.omni")
        self.workspace.write("s.pg", SCHEMA)
        self.workspace.write(
            "q.gq", "query q() { match { $p: Person } return { $p.name, $p.note } }\n"
        )
        self.workspace.write(f"{self.name}.pg", f"node A {{ }} // {text}\n{text}")
        self.workspace.write(f"{self.name}.gq", f"query {text}")
        self.workspace.write("later.pg", SCHEMA.replace("note", "remark"))
        data = {"type": "Person", "data": {"name": text + "!", text: 1}}
        self.workspace.write(f"{self.name}.jsonl", json.dumps(data))
        rule = {"id": text, "actors": {"group": text}, "types": ["Person"]}
        rows = [rule | {"where": "note = $actor.id"}, rule | {"id": "b", "types": [text]}]
        bundle = {"version": 2, "groups": {text: [text]}, "rows": rows}
        self.workspace.write(f"{self.name}.yaml", json.dumps(bundle))
        case = {"id": text, "actor": text, "expect": "deny", "sees": {"type": "Person", "id": text}}
        cases = {"version": 2, "cases": [case, {"id": "c", "actor": text, "x": text}]}
        self.workspace.write(f"{self.name}.cases", json.dumps(cases))
        spec = {"dimension": 4, "types": {"Person": {"target": "v", "fields": ["name"]}}}
        self.workspace.write("spec.json", json.dumps(spec))
        cluster = {
            "version": 1,
            "metadata": {"name": text},
            "graphs": {text: {"schema": f"{self.name}.no", text: 1}, "kb": {"schema": "kb.pg"}},
            "policies": {text: {"file": f"../{self.name}.yaml", "applies_to": [text]}},
        }
        valid = {"version": 1, "metadata": {"name": text}, "graphs": {"kb": {"schema": "kb.pg"}}}
        for folder, config in (("broken", cluster), ("lab", valid)):
            (directory / folder).mkdir()
            self.workspace.write(f"{folder}/cluster.yaml", json.dumps(config))
            self.workspace.write(f"{folder}/kb.pg", SCHEMA)
        profile = {f"p{text}": {"store": f"{text}.omni"}, "two": {"store": "a", "server": text}}
        (directory / ".operator").mkdir(exist_ok=True)
        self.workspace.write(
            ".operator/config.yaml", json.dumps({"profiles": profile, text: 1, "servers": {}})
        )

    def fill(self, word: str) -> str:
        names = {
            "TEXT": self.text,
            "NAME": self.name,
            "GRAPH": self.graph,
            "PROFILE": f"p{self.text}",
            **self.ids,
        }
        return re.sub(r"<(\w+)>", lambda actual: names[actual[1]], word)

    def run(self, command: str, words: tuple[str, ...], stdin: str = ""):
        filled = [self.fill(word) for word in words]
        given = self.fill(stdin).encode("utf-8", "surrogateescape")
        return self.workspace.run(
            *command.split(), *filled, stdin=given, OMNIGRAPH_EMBEDDINGS_MOCK="1"
        )


G, W = "<GRAPH>.omni", "<GRAPH>.w.omni"
READ = "query q() { match { $p: Person } return { $p.name, $p.note } }"
CASES: dict[str, list[tuple[str, ...]]] = {
    "init": [("--schema", "s.pg", "<GRAPH>.new.omni"), ("--schema", "<NAME>.pg", "n.omni")],
    "load": [
        (W, "--data", "<NAME>.jsonl", "--mode", "merge"),
        (W, "--data", "<NAME>.no", "--mode", "merge"),
        (W, "--data", "<NAME>.jsonl", "--mode", "merge", "--branch", "<TEXT>"),
        (W, "--data", "<NAME>.jsonl", "--mode", "merge", "--as", "<TEXT>"),
    ],
    "ingest": [(W, "--data", "<NAME>.jsonl"), (W, "--data", "<NAME>.no")],
    "query": [
        ("--store", G, "-e", READ),
        ("--store", G, "-e", READ, "--format", "kv"),
        ("--store", G, "-e", "query q() { match { $p: <TEXT> } return { $p.name } }"),
        ("--store", G, "-e", READ, "--branch", "<TEXT>"),
        ("--store", G, "-e", READ, "--tag", "<TEXT>"),
        ("--store", G, "-e", READ, "--params", "<TEXT>"),
        ("<TEXT>", "--store", G, "-e", READ),
    ],
    "mutate": [
        ("--store", W, "-e", "query w() { insert Person { name: <TEXT> } }"),
        ("--store", W, "-e", READ, "--as", "<TEXT>"),
        ("--store", W, "-e", 'query w() { insert Person { name: "n" } }', "--branch", "<TEXT>"),
    ],
    "alias": [("<TEXT>",)],
    "graphs list": [("--server", "<TEXT>")],
    "snapshot": [(G,), (G, "--branch", "<TEXT>")],
    "export": [("<TEXT>",), (G, "--type", "<TEXT>"), (G, "--out", "<NAME>.out")],
    "branch create": [("--uri", W, "made"), ("--uri", W, "<TEXT>"), ("--uri", W, " sp ")],
    "branch list": [("--uri", G)],
    "branch delete": [("--uri", W, "<TEXT>"), ("--uri", W, "side")],
    "branch merge": [
        ("--uri", G, "side", "--dry-run"),
        ("--uri", W, "side"),
        ("--uri", W, "side", "--resolve", "<TEXT>"),
        ("--uri", W, "<TEXT>"),
    ],
    "commit list": [(G,)],
    "commit show": [("--uri", G, "<COMMIT>"), ("--uri", G, "<TEXT>")],
    "commit changes": [("--uri", G, "<COMMIT>"), ("--uri", G, "<LAST>")],
    "log": [(G,), (G, "--oneline", "--all"), (G, "--stat"), (G, "--type", "<TEXT>")],
    "diff": [("side", "main", "--uri", G), ("<TEXT>", "main", "--uri", G)],
    "changes poll": [("--uri", G), ("--uri", G, "--cursor", "<TEXT>")],
    "changes baseline": [("--uri", G, "--out", "<NAME>.base")],
    "revert": [("--uri", W, "<LAST>"), ("--uri", W, "<TEXT>")],
    "cherry-pick": [("--uri", W, "<SIDE>"), ("--uri", W, "<TEXT>")],
    "blame": [("Person", "<TEXT>", "--uri", G), ("<TEXT>", "x", "--uri", G)],
    "tag create": [("--uri", W, "new"), ("--uri", W, "<TEXT>")],
    "tag list": [("--uri", G)],
    "tag delete": [("--uri", W, "<TEXT>no"), ("--uri", W, "<TEXT>")],
    "blob get": [
        ("node", "Person", "<TEXT>", "photo", "--uri", G, "--out", "<NAME>.png"),
        ("node", "Person", "<TEXT>no", "photo", "--uri", G),
    ],
    "blob stat": [
        ("node", "Person", "<TEXT>", "photo", "--uri", G),
        ("node", "<TEXT>", "x", "y", "--uri", G),
    ],
    "blob put": [
        ("node", "Person", "<TEXT>", "photo", "--file", "<NAME>.png", "--uri", W),
        ("node", "Person", "<TEXT>no", "photo", "--file", "s.pg", "--uri", W),
    ],
    "blob delete": [
        ("node", "Person", "<TEXT>", "photo", "--uri", W),
        ("node", "<TEXT>", "x", "y", "--uri", W),
    ],
    "schema show": [("<TEXT>",)],
    "schema plan": [(G, "--schema", "later.pg"), (G, "--schema", "<NAME>.pg")],
    "schema apply": [
        (W, "--schema", "s.pg"),
        (W, "--schema", "s.pg", "--values", "<TEXT>"),
        (W, "--schema", "<NAME>.pg"),
    ],
    "lint": [
        ("--schema", "<NAME>.pg"),
        ("--schema", "s.pg", "--query", "<NAME>.gq"),
        ("--schema", "s.pg", "--query", "<NAME>.no"),
    ],
    "fmt": [("--check", "<NAME>.pg"), ("<NAME>.no",), ("<NAME>",)],
    "explain": [
        ("--store", G, "-e", "query q() { match { $p: Person { note: <TEXT> } } return { $p } }"),
        ("--store", G, "-e", READ, "--analyze"),
        (
            "--schema",
            "s.pg",
            "-e",
            'query q() { match { $p: Person { note: "\x9b" } } return { $p.name } }',
        ),
    ],
    "index status": [(G,)],
    "index ensure": [(W,)],
    "index rebuild": [("--uri", W, "Person"), ("--uri", W, "<TEXT>")],
    "optimize": [(W,)],
    "repair": [(W,), ("<TEXT>",)],
    "cleanup": [(W, "--keep", "5"), (W, "--keep", "5", "--confirm")],
    "doctor": [(G,), (G, "--branch", "<TEXT>")],
    "verify": [(G,), ("<TEXT>",)],
    "backup": [(G, "--to", "<GRAPH>.bk"), ("<TEXT>", "--to", "x")],
    "backup prune": [
        ("<GRAPH>.bk", "--keep", "1"),
        ("<GRAPH>.bk", "--keep", "1", "--confirm"),
        ("<GRAPH>.bk", "--point", "<TEXT>", "--confirm"),
        ("<TEXT>", "--keep", "1", "--confirm"),
    ],
    "policy validate": [
        ("<NAME>.yaml", "--store", G),
        ("<NAME>.yaml", "--schema", "later.pg"),
        ("<NAME>.no",),
        ("<NAME>.pg",),
    ],
    "policy test": [("<NAME>.yaml", "--tests", "<NAME>.cases", "--store", G)],
    "policy explain": [
        ("<NAME>.yaml", "--actor", "<TEXT>", "--action", "read", "--branch", "<TEXT>"),
        ("<NAME>.yaml", "--actor", "<TEXT>", "--type", "Person", "--id", "<TEXT>", "--store", G),
        ("<NAME>.yaml", "--actor", "<TEXT>", "--type", "<TEXT>", "--id", "x", "--store", G),
        ("<NAME>.yaml", "--actor", "a", "--action", "<TEXT>"),
    ],
    "restore": [("<GRAPH>.bk", "<GRAPH>.r.omni"), ("<TEXT>", "x")],
    "clone": [(G, "<GRAPH>.c.omni"), ("<TEXT>", "x")],
    "embed": [
        ("--input", "<NAME>.jsonl", "--output", "<NAME>.e", "--spec", "spec.json"),
        ("--input", "<NAME>.no", "--output", "<NAME>.e", "--spec", "spec.json"),
    ],
    "shell": [(G,), (G, "--keep-going"), (G, "--branch", "<TEXT>")],
    "profile list": [()],
    "profile show": [("<PROFILE>",), ("<TEXT>",), ("two",)],
    "serve": [("--store", "<TEXT>"), (G, "--bind", "<TEXT>"), (G, "--policy", "<TEXT>")],
    "mcp": [("--store", "<TEXT>"), (G, "--queries", "<TEXT>"), (G, "--max-rows", "<TEXT>")],
    "cluster init": [("<NAME>.lab",), ("lab2", "--graph-id", "<TEXT>")],
    "cluster validate": [
        ("--config", "broken"),
        ("--config", "lab"),
        ("--config", "<NAME>.no"),
    ],
    "cluster import": [("--config", "broken"), ("--config", "lab", "--as", "<TEXT>")],
    "cluster plan": [("--config", "lab"), ("--config", "lab", "--out", "<NAME>.plan")],
    "cluster apply": [
        ("--config", "lab", "--as", "<TEXT>"),
        ("--config", "lab", "<NAME>.no"),
        ("--config", "broken"),
    ],
    "cluster deployments": [
        ("--config", "lab", "<TEXT>"),
        ("--config", "<NAME>.no"),
        ("--config", "lab", "--server", "<TEXT>"),
    ],
    "cluster status": [("--config", "lab"), ("--config", "<NAME>.no")],
    "cluster refresh": [("--config", "lab"), ("--config", "broken")],
    "cluster drift": [("--config", "lab"), ("--config", "broken")],
    "cluster approve": [("--config", "lab", "<TEXT>", "--as", "ana")],
    "cluster force-unlock": [("--config", "lab", "<TEXT>")],
    "queries list": [
        ("--cluster", "lab"),
        ("--cluster", "<NAME>.no"),
        ("--cluster", "lab", "--graph", "<TEXT>"),
    ],
    "queries validate": [("--cluster", "lab"), ("--cluster", "lab", "--graph", "<TEXT>")],
    "login": [("<TEXT>", "--token", "t"), ("lab", "--token", "<TEXT>")],
    "logout": [("<TEXT>",)],
    "warm start": [("<TEXT>",), ("--as", "<TEXT>")],
    "warm status": [("<TEXT>",), ("--as", "<TEXT>")],
    "warm stop": [("<TEXT>",), ("--as", "<TEXT>")],
    "completion": [("<TEXT>",), ("bash", "--line", "omnigraph query --profile ")],
    "version": [("<TEXT>",)],
}
SHELL = """\
match { $p: Person } return { $p.name, $p.note }
.format kv
match { $p: Person } return { $p.name, $p.note }
.tags
.branches
.commits
.diff side
.tables
.types
.at "<TEXT>"
.branch "<TEXT>"
.param name="<TEXT>"
.explain on
match { $p: Person  $p.note = "\\u009b" } return { $p.name }
.load "<NAME>.no"
.merge "<TEXT>"
.call "<TEXT>"
.<TEXT>
"""


def assert_safe(done, text: str) -> None:
    for shown in (done.stdout, done.stderr):
        assert UNSAFE.search(shown) is None, ascii(shown)
        for line in shown.split("\n"):
            assert not line.startswith(FORGED), ascii(shown)


@pytest.fixture(scope="module")
def hostiles(tmp_path_factory):
    made: dict[str, Hostile] = {}

    def get(kind: str) -> Hostile:
        if kind not in made:
            made[kind] = Hostile(tmp_path_factory.mktemp("hostile"), HOSTILE[kind])
        return made[kind]

    return get


def test_every_command_has_a_case():
    assert set(CASES) == set(commands())


def quick_and_slow() -> list[object]:
    """The text with every character in each run, and each text by itself in the slow one."""
    quick = [pytest.param("every", command) for command in CASES]
    alone = [(kind, command) for kind in HOSTILE if kind != "every" for command in CASES]
    return [*quick, *rotating(alone, 8, "hostile texts")]


@pytest.mark.parametrize(("kind", "command"), quick_and_slow())
def test_a_command_shows_no_control_character(hostiles, kind, command):
    hostile = hostiles(kind)
    for words in CASES[command]:
        done = hostile.run(command, words, SHELL if command == "shell" else "")
        assert_safe(done, hostile.text)


def test_what_is_escaped_is_still_shown(hostiles):
    hostile = hostiles("every")
    shown = escape(hostile.text)
    for command, words in (
        ("query", ("--store", G, "-e", READ, "--format", "kv")),
        ("tag list", ("--uri", G)),
        ("commit list", (G,)),
        ("log", (G,)),
        ("changes poll", ("--uri", G)),
        ("blame", ("Person", "<TEXT>", "--uri", G)),
    ):
        assert shown in hostile.run(command, words).stdout, command
    done = hostile.run("branch merge", ("--uri", G, "side", "--dry-run"))
    assert done.returncode == 3
    assert "conflict" in done.stdout


def test_a_tag_of_another_program_is_listed_read_and_deleted(tmp_path):
    text = HOSTILE["every"]
    hostile_graph(tmp_path / "g.omni", text)
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        assert [tag.name for tag in graph.tags.list()] == [text]
        assert graph.snapshot(tag=text).count("Person") == 2
        graph.tags.delete(text)
        assert graph.tags.list() == []


# -- what programs read ---------------------------------------------------------------------------


def test_formats_for_programs_are_exact(hostiles):
    hostile = hostiles("every")
    text = hostile.text

    def rows(format: str) -> str:
        return hostile.run("query", ("--store", G, "-e", READ, "--format", format)).stdout

    names = {row["p.name"] for row in json.loads(rows("json"))["rows"]}
    assert text in names
    lines = [json.loads(line) for line in rows("jsonl").split("\n") if line]
    assert text in {line.get("p.name") for line in lines}
    assert '"\x9b'.strip('"') in rows("json")
    table = list(csv.reader(io.StringIO(rows("csv"), newline="")))
    assert text in {row[0] for row in table}
    exported = hostile.run("export", (G,)).stdout.split("\n")
    assert text in {json.loads(line).get("data", {}).get("name") for line in exported if line}
    tags = json.loads(hostile.run("tag list", ("--uri", G, "--json")).stdout)
    assert tags["tags"][0]["name"] == text


class Tty(io.TextIOWrapper):
    """A stream at which somebody sits."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", newline="")

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("utf-8")


@contextmanager
def at_a_terminal() -> Iterator[tuple[Tty, Tty]]:
    out, err = Tty(), Tty()
    environ = {"TERM": "xterm", "NO_COLOR": ""}
    with mock.patch.dict(os.environ, environ), redirect_stdout(out), redirect_stderr(err):
        yield out, err


def test_json_on_a_terminal_is_the_same_document_in_visible_characters():
    document = {"a": HOSTILE["every"]}
    with at_a_terminal() as (out, _):
        terminal.show_json(document)
    assert UNSAFE.search(out.shown) is None
    assert json.loads(out.shown) == document


def test_source_on_a_terminal_keeps_its_lines():
    with at_a_terminal() as (out, _):
        terminal.show_source("node A {\n\tname: String\x1b[2J\r\n}\n")
    assert out.shown == "node A {\n\tname: String\\x1b[2J\\r\n}\n"


def test_colours_are_ours_alone():
    with at_a_terminal() as (out, err):
        terminal.show(terminal.paint("a\x1b[1mb", "red") + " \x1b[31mc\x1b[0m")
        terminal.fail("x\x1b[2J", hint="y\n\x9b", code="z")
    assert out.shown == "\x1b[31ma\\x1b[1mb\x1b[0m \\x1b[31mc\\x1b[0m\n"
    assert err.shown == "\x1b[31mError:\x1b[0m x\\x1b[2J\nhint: y\\n\\x9b\ncode: z\n"


def test_progress_and_questions_are_safe(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    with at_a_terminal() as (_, err):
        with progress_bar("load\x1b]0;x\x07") as line:
            line.show("phase\n", 1, 2, "file\x9b\r")
        assert terminal.confirm("really\n\u202e? ")
    shown = err.shown.replace("\r\x1b[2K", "")
    assert UNSAFE.search(shown) is None
    assert "load\\x1b]0;x\\x07  phase\\n" in shown
    assert shown.endswith("really\\n\\u202e? ")


# -- errors, texts and records --------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_caret_stands_under_its_place(text):
    line = f'query q() {{ match {{ $p: Person {{ name: "{text.split(chr(10))[0]}" }} ? }} }}'
    source = Source(f"{text}.gq", line)
    at = line.index("?")
    message, hint = f"unexpected {text}", f"not {text}"
    actual = Diagnostic(Phase.PARSE, "P001", message, source, Span(at, at + 1), hint)
    shown = actual.render().split("\n")
    assert len(shown) == 4
    assert UNSAFE.search("\n".join(shown)) is None
    assert shown[1][shown[2].index("^")] == "?"


def test_a_table_stays_aligned(hostiles):
    hostile = hostiles("every")
    out = hostile.run("query", ("--store", G, "-e", READ)).stdout
    head, rule, *rows = out.rstrip("\n").split("\n")[1:]
    assert len({len(line) for line in (head, rule, *rows)}) == 1
    assert len({line.index("|") for line in (head, *rows)} | {rule.index("+")}) == 1


def test_a_record_of_a_log_is_one_line(caplog):
    logger("omnigraph.test").warning(
        "the branch '%s' of %d stays: %s", "a\n\x1b", 3, ValueError("\r")
    )
    (record,) = caplog.records
    assert record.getMessage() == "the branch 'a\\n\\x1b' of 3 stays: \\r"
    assert record.funcName == "test_a_record_of_a_log_is_one_line"


def test_what_the_engine_warns_of_is_a_warning_of_the_command(capsys):
    with show_engine_warnings():
        logger("omnigraph.test").warning("'%s' stays", "a\n")
        logger("omnigraph.test").info("nothing")
    logger("omnigraph.test").debug("nothing")
    assert capsys.readouterr().err == "warning: 'a\\n' stays\n"


# -- nobody can forget it -------------------------------------------------------------------------

SOURCES = Path(cli.__file__).parent
EXACT = {"show_raw", "show_bytes"}
MAY_BE_EXACT = {"blob.py", "completion.py", "parser.py", "rows.py", "terminal.py"}
"""Bytes, texts of ours, and rows, which are escaped cell by cell before they are laid out."""
MAY_WRITE = {"__init__.py", "terminal.py"}


def test_only_the_terminal_writes_to_streams():
    for path in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            target = ast.unparse(node.func)
            if target in {f"sys.{name}.write" for name in ("stdout", "stderr")}:
                assert path.name in MAY_WRITE, f"{path.name}:{node.lineno}"


def test_who_writes_exactly_is_known():
    for path in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in EXACT:
                assert path.name in MAY_BE_EXACT, f"{path.name}:{node.lineno}"


def test_every_logger_is_one_of_safe_lines():
    for path in SOURCES.parent.rglob("*.py"):
        # The log of a server is JSON, which has no control characters; that of MCP is dropped.
        if path.name in ("logs.py", "program.py", "launch.py", "request_log.py", "agents.py"):
            continue
        assert "logging.getLogger" not in path.read_text("utf-8"), path


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a\n", " sp ", "\ta", "a\x1b[2J", "a\x9b", "a\u202e", "a b", "\n"]
)
def test_a_name_is_refused_or_taken_exactly(tmp_path, name):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.branches.create("sp")
        graph.branches.create("a")
        graph.tags.create("sp")
        graph.tags.create("a")
        with pytest.raises(InputError):
            graph.branches.create(name)
        with pytest.raises(InputError):
            graph.tags.create(name)
        for ask in (
            lambda: graph.snapshot(name),
            lambda: graph.snapshot(tag=name),
            lambda: graph.branches.delete(name),
            lambda: graph.tags.delete(name),
            lambda: graph.load([], branch=name),
            lambda: graph.load([], branch=name, from_branch="main"),
            lambda: graph.merge(name),
        ):
            with pytest.raises((InputError, NotFound)):
                ask()
        assert graph.branches.list() == ["main", "a", "sp"]
        assert [tag.name for tag in graph.tags.list()] == ["a", "sp"]


def writers(graph: Graph, actor: str):
    row = [{"type": "Person", "data": {"name": "n"}}]
    insert = 'query i() { insert Person { name: "m" } }'
    yield lambda: graph.load(row, actor=actor)
    yield lambda: graph.mutate(insert, actor=actor)
    yield lambda: graph.append({"Person": [{"name": "o"}]}, actor=actor)
    yield lambda: graph.tags.create("t", actor=actor)
    yield lambda: graph.merge("side", actor=actor)
    yield lambda: graph.indexes.ensure(actor=actor)
    yield lambda: Graph.open(graph.uri, actor=actor)


@pytest.mark.parametrize("actor", ["a\n", "\x1b[2J", "a\x9b", "\u202ea", "a\u2028", "a\x7f"])
def test_an_actor_without_control_characters(tmp_path, actor):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.branches.create("side")
        before = graph.commits()
        for write in writers(graph, actor):
            with pytest.raises(InputError, match="control characters"):
                write()
        with pytest.raises(InputError, match="control characters"):
            LoadDestination("main", actor=actor)
        assert graph.commits() == before
    with pytest.raises(InputError, match="control characters"):
        Graph.init(tmp_path / "other.omni", SCHEMA, actor=actor)


def test_an_actor_is_kept_exactly(tmp_path):
    location = Workspace(tmp_path)
    location.write("d.jsonl", '{"type": "Person", "data": {"name": "n"}}')
    (tmp_path / ".operator").mkdir()
    location.write(".operator/config.yaml", 'operator: {actor: " sp "}')
    Graph.init(tmp_path / "g.omni", SCHEMA, durability="os").close()
    load = ("load", "g.omni", "--data", "d.jsonl", "--mode", "merge")
    assert location.run(*load).returncode == 0
    assert location.run(*load, "--as", "ä x ").returncode == 0
    with Graph.open(tmp_path / "g.omni", "r") as graph:
        assert [commit.actor for commit in graph.commits()][:2] == ["ä x ", " sp "]
    location.write(".operator/config.yaml", 'operator: {actor: "a\\nb"}')
    done = location.run(*load)
    assert done.returncode == 1
    assert "`operator.actor` cannot hold control characters" in done.stderr
    location.write(".operator/config.yaml", "operator: {actor: ana}")
    # Nobody else is taken for somebody without a name.
    done = location.run(*load, "--as", "")
    assert (done.returncode, "actor must have" in done.stderr) == (1, True)
    done = location.run(*load, "--as", "a\nb")
    assert (done.returncode, "control characters" in done.stderr) == (1, True)


def test_tab_in_the_shell_offers_nothing_that_cannot_be_typed(tmp_path):
    hostile_graph(tmp_path / "g.omni", "x\x1b[2J")
    with Graph.open(tmp_path / "g.omni", "r") as graph:
        session = Session(graph, GraphTarget("g", None, None), None, None, is_live=True)
        actual = Completion(session).find([], ".at ", "")
        assert "side" in actual
        assert not any(map(has_controls, actual))
        session.pinned_name = "x\x1b[2J\n"
        assert session.prompt == "omnigraph:main@x\\x1b[2J\\n> "
