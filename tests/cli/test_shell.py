"""``omnigraph shell`` as a script uses it, and the parts that a terminal has besides."""

from __future__ import annotations

import io
import re
import signal
import sys

import pytest

from omnigraph import Graph, cli
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.cli.shell.completion import Completion, SessionNames, candidates
from omnigraph.cli.shell.input import ShellHistory, StatementReader
from omnigraph.cli.shell.interrupts import ShellInterrupts
from omnigraph.cli.shell.session import Session
from omnigraph.cli.shell.statements import (
    ShellParameter,
    is_complete,
    parse_parameter,
    parse_statements,
)
from omnigraph.cli.targets import GraphTarget
from omnigraph.errors import InputError, QueryError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan import compile_query
from tests.cli.workspace import Workspace, assert_fails
from tests.pages import ROOT, blocks

pytestmark = pytest.mark.rotates(2)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
}

node City {
  title: String @key
}

edge Knows: Person -> Person {
  since: I32?
}

edge LivesIn: Person -> City
"""
DATA = """\
{"type": "Person", "data": {"name": "Ana", "age": 30, "born": "1996-02-03"}}
{"type": "Person", "data": {"name": "Ben", "age": 41}}
{"type": "City", "data": {"title": "Basel"}}
{"edge": "Knows", "from": "Ana", "to": "Ben"}
"""
QUERIES = """\
query friends($name: String) {
  match { $p: Person { name: $name } $p knows $f }
  return { $f.name }
}

query birthday($name: String, $age: I32) {
  update Person set { age: $age } where name = $name
}
"""
SCRIPT = r"""// who is there
match { $p: Person }
return { $p.name, $p.age } order { $p.name }

query older($age: I32) {

  match { $p: Person  $p.age > $age }
  return { $p.name }
}
.call friends name=Ana
.call older age=40
\param name=Ben
\param born:Date=1996-02-03
match { $p: Person { name: $name } } return { $p.age }
match { $p: Person  $p.born = $born } return { $p.name };
\branch -c dev
insert Person { name: "Cy", age: 5 }
update Person
  set { age: 6 }
  where name = "Cy"
.run q.gq birthday
\param age=50
.run q.gq birthday
.diff main
.branch main
.branches
.merge dev
.diff main dev
.format kv
match { $p: Person { name: "Cy" } } return { $p.age }
.format jsonl
match { $p: Person { name: "Cy" } } return { $p.age }
.tables
.load more.ndjson append
.queries
.param -d name
.explain on
match { $p: Person } return { count($p) as n }
quit
this is never read
"""

PROMPT = re.compile(r"omnigraph:\w+> | +\.\.\.> ")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A graph that is only read."""
    workspace = Workspace(tmp_path_factory.mktemp("shell"))
    fill(workspace)
    return workspace


def fill(workspace: Workspace) -> None:
    workspace.write("s.pg", SCHEMA)
    workspace.write("d.ndjson", DATA)
    workspace.write("q.gq", QUERIES)
    with Graph.init(workspace.directory / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(workspace.directory / "d.ndjson")
        first = graph.commits()[0].commit_id
        graph.tags.create("first", first)
        graph.mutate('query q() { insert Person { name: "Dan", age: 7 } }')
        graph.branches.create("dev")


@pytest.fixture
def shell(workspace, capsys, monkeypatch):
    """The shell in this process, reading a script; gives the exit code and both outputs."""

    def run(script: str | bytes, *arguments: str) -> tuple[int, str, str]:
        data = script if isinstance(script, bytes) else script.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setenv("OMNIGRAPH_HOME", str(workspace.directory / ".operator"))
        monkeypatch.chdir(workspace.directory)
        code = cli.main(["shell", "g.omni", "--read-only", *arguments])
        return code, *capsys.readouterr()

    return run


# -- scripts --------------------------------------------------------------------------------------


def test_a_script_reads_changes_branches_merges_and_stops_where_it_says(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write("s.pg", SCHEMA)
    workspace.write("d.ndjson", DATA)
    workspace.write("q.gq", QUERIES)
    workspace.write("more.ndjson", '{"type": "City", "data": {"title": "Graz"}}\n')
    Graph.init(tmp_path / "g.omni", SCHEMA, durability="os").close()
    begin = b".load d.ndjson\n"
    shell = ("shell", "g.omni", "--queries", "q.gq", "--as", "ana", "--keep-going")
    done = workspace.process(*shell, stdin=begin + SCRIPT.encode())
    assert done.returncode == 0
    assert "omnigraph:" not in done.stdout
    assert [line for line in done.stderr.splitlines() if line.startswith("Error:")] == [
        "Error: parameter 'age' not provided",
        "Error: parameter 'age' not provided",
    ]
    assert "\\param name=value" in done.stderr
    reported = [line.rstrip() for line in done.stdout.splitlines() if "commit_id" not in line]
    assert reported == [
        "loaded d.ndjson on branch main with merge: 3 nodes, 1 edges",
        "2 rows from branch main via shell",
        "p.name | p.age",
        "-------+------",
        "Ana    | 30",
        "Ben    | 41",
        "1 rows from branch main via friends",
        "f.name",
        "------",
        "Ben",
        "1 rows from branch main via older",
        "p.name",
        "------",
        "Ben",
        '$name: String = "Ben"',
        '$name: String = "Ben"',
        '$born: Date = "1996-02-03"',
        "1 rows from branch main via shell",
        "p.age",
        "-----",
        "41",
        "1 rows from branch main via shell",
        "p.name",
        "------",
        "Ana",
        "created branch dev from main",
        "changed dev via shell: 1 nodes, 0 edges",
        "changed dev via shell: 1 nodes, 0 edges",
        '$name: String = "Ben"',
        '$born: Date = "1996-02-03"',
        "$age: I64 = 50",
        "changed dev via birthday: 1 nodes, 0 edges",
        "node:Person +1 ~1 -0",
        "~ node Person 'Ben'  age: 41 → 50",
        """+ node Person 'Cy' {"age": 6, "name": "Cy"}""",
        "on branch main",
        "* main",
        "  dev",
        "merged dev into main: fast_forward",
        "  node:Person +1 ~1 -0",
        "no differences",
        "format is kv",
        "1 rows from branch main via shell",
        "row 1",
        "p.age: 6",
        "format is jsonl",
        '{"kind":"metadata","query_name":"shell","target":{"branch":"main","snapshot":null},'
        '"row_count":1}',
        '{"p.age":6}',
        *(
            line
            for line in reported
            if line.startswith(("edge:", "node:")) and line.endswith(" rows")
        ),
        "loaded more.ndjson on branch main with append: 1 nodes, 0 edges",
        "read  friends($name: String)",
        "mutation  birthday($name: String, $age: I32)",
        "read  older($age: I32)",
        '$born: Date = "1996-02-03"',
        "$age: I64 = 50",
        "explain is on",
        *reported[reported.index("read shell()") : -2],
        '{"kind":"metadata","query_name":"shell","target":{"branch":"main","snapshot":null},'
        '"row_count":1}',
        '{"n":3}',
    ]
    with Graph.open(tmp_path / "g.omni", "r") as graph:
        assert graph.commits()[-2].actor == "ana"
    assert not (tmp_path / ".operator").exists()


def test_a_script_stops_at_the_first_failure_with_exit_code_1(workspace):
    script = b"match { $p: Persn } return { $p.name }\n.branches\n"
    done = workspace.process("shell", "g.omni", "--read-only", stdin=script)
    assert_fails(done, "<shell>:1:13: type error: T1: unknown node type `Persn`")
    assert "            ^^^^^\n   = hint: did you mean `Person`?" in done.stderr
    kept = workspace.run("shell", "g.omni", "--read-only", "--keep-going", stdin=script)
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, "* main\n  dev\n", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("none.omni",), 1, "none.omni"),
        (("g.omni", "--branch", "nothing"), 1, "nothing"),
        (("g.omni", "--queries", "none.gq"), 1, "none.gq: no such file"),
        (("g.omni", "--history", "h", "--no-history"), 2, "not allowed with"),
        (("g.omni", "--format", "parquet"), 2, "invalid choice"),
        (("g.omni", "--cluster", "c"), 1, "--cluster addresses a cluster-scoped command"),
    ],
)
def test_a_shell_that_cannot_start_says_why(workspace, capsys, monkeypatch, arguments, code, text):
    monkeypatch.chdir(workspace.directory)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(workspace.directory / ".operator"))
    assert cli.main(["shell", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("hello", "unknown statement 'hello'"),
        ("limit 3", "`limit` without a query before it"),
        (".brnch dev", "did you mean .branch?"),
        (r"\nothing", "unknown command '\\nothing'"),
        (r"\branch nowhere", r"\branch -c nowhere creates it"),
        (r"\branch deb", "did you mean dev?"),
        (r"\branch a b", ".branch [-c] NAME"),
        (r"\branch -c", "the new branch needs a name"),
        (r"\branch -c x", "open for reading only"),
        (r"\at nowhere", "no tag or commit 'nowhere'"),
        (".format parquet", "invalid format 'parquet'"),
        (".explain maybe", "invalid value 'maybe'"),
        (".commits many", "invalid number 'many'"),
        (".load none.ndjson wildly", "invalid mode 'wildly'"),
        (".load", ".load FILE [MODE]"),
        (".run none.gq", "none.gq: no such file or directory"),
        (".run q.gq", "it has friends, birthday"),
        (".run q.gq frends", "query 'frends' not found"),
        (".call nothing", "stored query 'nothing' not found"),
        (".call friends Ana", "write name=value"),
        (".param name", "write name=value"),
        (".param a b=1", "invalid parameter name 'a b'"),
        (".param a:Text=1", "invalid parameter type 'Text'"),
        (".param a={}", "single value or a list"),
        (".diff main 'dev", "unclosed quote"),
        (".diff", ".diff A [B]"),
        (".merge dev mine", "use ours or theirs"),
        ('insert Person { name: "Eve" }', "open for reading only"),
        ("match { $p: Person } return { $p.nme }", "did you mean `name`?"),
        ("query q( { }", "<shell>:1:10: parse error"),
    ],
)
def test_what_is_wrong_is_told_and_fails_a_script(shell, line, text):
    code, out, err = shell(f"{line}\n.branches\n", "--queries", "q.gq")
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert text in err


def test_an_earlier_state_is_read_by_its_tag_or_commit_and_is_not_changed(workspace, shell):
    count = "match { $p: Person } return { count($p) as n }\n"
    with Graph.open(workspace.directory / "g.omni", "r") as graph:
        first = graph.tags.list()[0].commit_id
    script = f"\\at first\n{count}\\at {first}\n{count}.tables\n\\at none\n{count}.tags\n"
    code, out, _ = shell(script, "--format", "csv")
    assert code == 0
    assert out.splitlines() == [
        "reading first",
        "n",
        "2",
        f"reading {first}",
        "n",
        "2",
        *(line for line in out.splitlines() if line.startswith(("node:", "edge:"))),
        "reading the head of main",
        "n",
        "3",
        f"first {first}",
    ]
    code, _, err = shell('\\at first\ninsert Person { name: "Eve" }\n')
    assert code == 1
    assert "the earlier state 'first' cannot be changed" in err


def test_the_schema_the_types_and_the_commits_are_shown(shell):
    code, out, err = shell(".schema\n\\types\n.commits 1\n.timing on\n.help\n")
    assert code == 0
    assert out.startswith(SCHEMA.rstrip("\n") + "\n")
    assert "node Person\n  age: I32?\n  born: Date?\n  name: String @key\n" in out
    assert "edge LivesIn: Person -> City\n" in out
    assert " branch=main version=" in out
    assert "earlier commits" in err
    assert "time: " in err
    assert "  switch to a branch; -c creates it" in out


def test_a_merge_with_conflicts_names_them_and_how_to_decide(tmp_path):
    workspace = Workspace(tmp_path)
    fill(workspace)
    script = b"""update Person set { age: 31 } where name = "Ana"
\\branch dev
update Person set { age: 32 } where name = "Ana"
\\branch main
.merge dev
.merge dev theirs
match { $p: Person { name: "Ana" } } return { $p.age }
"""
    done = workspace.run("shell", "g.omni", "--keep-going", "--format", "csv", stdin=script)
    assert done.returncode == 0
    assert "hint: .merge dev ours keeps main, .merge dev theirs takes dev\n" in done.stderr
    assert "code: merge_conflicts\n  " in done.stderr
    assert "merged dev into main: merged\n" in done.stdout
    assert done.stdout.endswith("p.age\n32\n")


def test_a_bug_does_not_end_the_shell(shell, monkeypatch):
    def fail(*arguments, **how):
        raise ZeroDivisionError("secret")

    monkeypatch.delenv("OMNIGRAPH_DEBUG", raising=False)
    monkeypatch.setattr(GraphSnapshot, "query", fail)
    code, out, err = shell("match { $p: Person } return { $p }\n.branches\n", "--keep-going")
    assert (code, out) == (0, "* main\n  dev\n")
    assert "internal error (ZeroDivisionError)" in err
    assert "secret" not in err


def test_the_first_interrupt_is_told_and_the_second_breaks_off(workspace):
    reported = []
    before = signal.getsignal(signal.SIGINT)
    with Graph.open(workspace.directory / "g.omni", "r") as graph, ShellInterrupts() as interrupts:
        session = Session(graph, GraphTarget("g.omni", None, None), None, None, is_live=True)
        session.interrupts = interrupts
        with interrupts.running(), session.guarded(lambda: reported.append(1)):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    assert reported == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_dialogue_of_the_page_is_true(shell):
    page = ROOT / "docs" / "shell.md"
    (dialogue,) = (block.text for block in blocks(page) if block.language == "text")
    lines = dialogue.splitlines()[1:]
    typed = [line.split("> ", 1)[1] for line in lines if PROMPT.match(line)]
    code, out, err = shell("".join(f"{line}\n" for line in typed))
    assert (code, err) == (0, "")
    shown = [line for line in lines if not PROMPT.match(line)]
    assert [line.rstrip() for line in out.splitlines()] == shown


def test_a_statement_without_an_end_is_run_at_the_end_of_the_script(shell):
    code, out, err = shell("match { $p: Person }\n  return {\n")
    assert (code, out) == (1, "")
    assert "parse error" in err
    assert shell("// nothing\n\n/* at all */") == (0, "", "")


def test_a_script_that_is_no_text_is_refused(shell):
    code, _, err = shell(b"match \xff\n")
    assert code == 1
    assert "<stdin>: not UTF-8 text" in err


# -- where a statement ends -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("", True),
        ("// a comment", True),
        ("match { $p: Person", False),
        ("match { $p: Person }", False),
        ("match { $p: Person } return", False),
        ("match { $p: Person } return { $p.name }", True),
        ("match { $p: Person } return distinct { $p.name } limit", False),
        ("match { $p: Person } return { $p.name } limit 3", True),
        ('match { $p: Person { name: "}', False),
        ('match { $p: Person { name: "}" } } return { $p }', True),
        ("match { $p: Person } /* return { $p }", False),
        ("query q()", False),
        ("query q() {", False),
        ("query q() { match { $p: Person } return { $p } }", True),
        ("insert Person", False),
        ('insert Person { name: "Ana" }', True),
        ("update Person set { age: 1 }", False),
        ('update Person set { age: 1 } where name = "Ana"', True),
        ("delete Person where name =", False),
        ("delete Person where age > 3", True),
        ("delete Person where age > 3 and", False),
        ("}", True),
        ("hello", True),
    ],
)
def test_a_statement_ends_when_nothing_is_missing(text, is_whole):
    assert is_complete(text) is is_whole


class Lines:
    """Lines that were typed beforehand."""

    def __init__(self, *lines: str, is_live: bool = True) -> None:
        self.is_live = is_live
        self.kept: list[list[str]] = []
        self.prompts: list[str] = []
        self._lines = iter(lines)

    def read(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return next(self._lines, None)

    def keep(self, lines):
        self.kept.append(list(lines))


def test_lines_are_put_together_until_they_can_be_run():
    lines = Lines("", "match { $p: Person }", "return { $p }", ".help ", "match {", "", "quit")
    reader = StatementReader(lines)
    read = [reader.next("> ") for _ in range(5)]
    assert read == [
        "match { $p: Person }\nreturn { $p }",
        ".help",
        "match {\n",
        "quit",
        None,
    ]
    assert lines.prompts[:4] == ["> ", "> ", "      ...> ", "> "]
    assert lines.kept == [
        ["match { $p: Person }", "return { $p }"],
        [".help"],
        ["match {"],
        ["quit"],
    ]


def test_blank_lines_of_a_file_or_of_a_pasted_text_end_nothing():
    text = "query q() {\n\n  match { $p: P }\n\n  return { $p }\n}"
    assert StatementReader(Lines(*text.split("\n"), is_live=False)).next("") == text
    assert StatementReader(Lines(text)).next("") == text


def test_what_was_not_finished_counts_in_a_file_and_not_at_a_terminal():
    assert StatementReader(Lines("match {", is_live=False)).next("") == "match {"
    assert StatementReader(Lines("match {")).next("") is None


# -- what a statement stands for ------------------------------------------------------------------


def test_a_body_gets_a_head_with_the_parameters_that_it_uses():
    params = {
        "name": ShellParameter("Ana"),
        "p": ShellParameter(1),
        "age": ShellParameter(3),
        "f": ShellParameter(2),
    }
    text = "match { $p: Person { name: $name } $p knows $f } return { $p.age }"
    (actual,) = parse_statements(text, params)
    assert actual.text.startswith("query shell($name: String) { match {")
    assert not actual.writes
    assert parse_statements('insert Person { name: "x", age: $age }', params)[0].writes


def test_findings_point_into_what_was_typed():
    text = "match { $p: Person { age: $age } }\nreturn { $p.nme }"
    (broken,) = parse_statements(text, {"age": ShellParameter(1)})
    with pytest.raises(QueryError) as caught, broken.mapping_diagnostics():
        compile_query(compile_schema(SCHEMA), broken.text, "shell")
    assert caught.value.diagnostics[0].location == "<shell>:2:10"


@pytest.mark.parametrize(
    ("text", "name", "value", "type_"),
    [
        ("name=Ana", "name", "Ana", "String"),
        ('$name = "Ana B"', "name", "Ana B", "String"),
        ("n=3", "n", 3, "I64"),
        ("n=3.5", "n", 3.5, "F64"),
        ("n=true", "n", True, "Bool"),
        ("n=null", "n", None, "String?"),
        ("n=[1, 2]", "n", [1, 2], "[I64]"),
        ("n=[1, 2.5]", "n", [1, 2.5], "[F64]"),
        ("n=[]", "n", [], "[String]"),
        ("d: Date? = 2026-01-31", "d", "2026-01-31", "Date?"),
        ("v:Vector(2)=[0, 1]", "v", [0, 1], "Vector(2)"),
        ("n=a=b", "n", "a=b", "String"),
    ],
)
def test_parameters_have_the_type_that_is_said_or_that_they_seem_to_have(text, name, value, type_):
    actual, param = parse_parameter(text)
    assert (actual, param.value, param.declared) == (name, value, type_)


def test_a_parameter_is_no_object():
    with pytest.raises(InputError, match="single value"):
        parse_parameter('n=[{"a": 1}]')


# -- Tab ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "word", "some", "without"),
    [
        ("", "ma", {"match"}, set()),
        ("", "fr", {"friends"}, set()),
        ("match { $p: ", "", {"Person", "City", "knows"}, {"name", "match"}),
        ("match { $p: Person { ", "", {"name", "age"}, {"title", "match"}),
        ("match { $p: Person { age: 3, ", "", {"name", "age"}, {"title"}),
        ("match { $p: Person ", "$", {"$p", "$given"}, set()),
        ("match { $p: Person $p ", "", {"knows", "livesIn", "contains"}, {"name"}),
        ("match { $c: City $c ", "", {"livesIn"}, {"knows"}),
        ("match { $x ", "", {"livesIn", "knows"}, set()),
        ("match { $p: Person } return { ", "$p.", {"$p.name", "$p.age"}, {"$p.title"}),
        ("match { $p: Person $p livesIn $c } return { ", "$c.", {"$c.title"}, {"$c.name"}),
        ("match { $c: City $p livesIn $c } return { ", "$p.", {"$p.name"}, {"$p.title"}),
        ("match { $c: City $c livesIn $p } return { ", "$p.", {"$p.name"}, {"$p.title"}),
        ("match { $p: Person $p knows{1,3} $f } return { ", "$f.", {"$f.name"}, {"$f.since"}),
        ("match { $p: Person $p <knows> $f } return { ", "$f.", {"$f.name"}, {"$f.since"}),
        ("match { $p: Person $p $w:knows $f } return { ", "$w.", {"$w.since"}, {"$w.name"}),
        ("return { ", "$u.", {"$u.name", "$u.title", "$u.since"}, set()),
        ("insert ", "", {"Person", "City", "Knows"}, {"match"}),
        ("insert Person { ", "", {"name", "age"}, {"title"}),
        ("update Person set { ", "", {"name", "age"}, {"title"}),
        ("delete City where ", "", {"title"}, {"name"}),
        ("match { $p: Person } ", "", {"return", "nearest", "count", "Person"}, set()),
    ],
)
def test_tab_offers_what_fits_the_place(before, word, some, without):
    names = SessionNames(("friends",), ("given",))
    actual = set(candidates(compile_schema(SCHEMA), before, word, names))
    assert some <= actual
    assert not without & actual


def test_tab_offers_what_a_command_takes(workspace, monkeypatch):
    monkeypatch.chdir(workspace.directory)
    with Graph.open("g.omni", "r") as graph:
        session = Session(graph, GraphTarget("g.omni", None, None), None, None, is_live=True)
        session.add_queries("q.gq")
        tab = Completion(session)
        commit = graph.commits()[0].commit_id
        assert tab.find([], "", ".br") == [".branch", ".branches"]
        assert tab.find([], "", "\\br") == ["\\branch", "\\branches"]
        assert tab.find([], "\\branch ", "") == ["dev", "main"]
        assert tab.find([], "\\branch -c ", "d") == ["dev"]
        assert tab.find([], "\\at ", "f") == ["first"]
        assert commit in tab.find([], "\\at ", "")
        assert tab.find([], ".diff main ", "d") == ["dev"]
        assert tab.find([], ".merge dev ", "t") == ["theirs"]
        assert tab.find([], ".call ", "f") == ["friends"]
        assert tab.find([], ".format ", "j") == ["json", "jsonl"]
        assert tab.find([], ".explain ", "") == ["off", "on"]
        assert tab.find([], ".load ", "d.") == ["d.ndjson"]
        assert tab.find([], ".load ", "./g") == ["./g.omni/"]
        assert tab.find([], ".load d.ndjson ", "m") == ["merge"]
        assert tab.find([], ".nothing ", "") == []
        assert tab.find([], ".help ", "") == []
        assert tab.find(["match { $p: Person"], " return { ", "$p.n") == ["$p.name"]


def test_tab_offers_nothing_where_the_graph_cannot_be_asked(workspace):
    with Graph.open(workspace.directory / "g.omni", "r") as graph:
        session = Session(graph, GraphTarget("g.omni", None, None), None, None, is_live=True)
    assert Completion(session).find([], "\\branch ", "") == []


# -- history --------------------------------------------------------------------------------------


def test_a_history_that_cannot_be_kept_is_one_warning(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    history = ShellHistory(tmp_path / "file" / "history")
    history.add(".help")
    history.add(".quit")
    history.trim()
    assert history.entries() == []
    assert capsys.readouterr().err.count("warning: the history cannot be written") == 1


def test_a_history_does_not_repeat_itself_and_is_bounded(tmp_path):
    history = ShellHistory(tmp_path / "new" / "history")
    for entry in (".help", ".help", *(f".commits {n}" for n in range(1_000)), ".help"):
        history.add(entry)
    assert len((tmp_path / "new" / "history").read_text().splitlines()) == 1_002
    history.trim()
    kept = (tmp_path / "new" / "history").read_text().splitlines()
    assert kept == history.entries()
    assert len(kept) == 1_000
    assert (kept[0], kept[-1]) == (".commits 1", ".help")
    assert (tmp_path / "new" / "history").stat().st_mode & 0o777 == 0o600
