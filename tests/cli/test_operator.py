"""The operator's configuration, profiles and aliases."""

from __future__ import annotations

import json

import pytest

from omnigraph.cli.operator_config import (
    Alias,
    Defaults,
    OperatorConfig,
    Profile,
    parse_operator_config,
)
from omnigraph.errors import InputError
from tests.cli.desk import Desk
from tests.cli.workspace import Workspace, assert_fails
from tests.client.stub import stub_server
from tests.pages import ROOT, blocks

FULL = """\
operator: { actor: ana }
servers:
  lab: { url: "http://127.0.0.1:8080/" }
defaults: { server: lab, default_graph: kb, output: kv, table_max_column_width: 20 }
profiles:
  lab-admin: { cluster: labroot, default_graph: kb }
  mine: { store: /data/g.omni }
  remote: { server: lab }
clusters:
  labroot: { root: "s3://lab-bucket/cluster" }
aliases:
  due: { server: lab, graph: kb, query: due_tasks, args: [since], params: { limit: 5 } }
"""


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    return Desk(tmp_path, monkeypatch, capsys)


# -- config.yaml ----------------------------------------------------------------------------------


def test_every_key_has_its_place():
    assert parse_operator_config(FULL, "c") == OperatorConfig(
        actor="ana",
        defaults=Defaults("kv", 20, "truncate", "lab", None, "kb"),
        servers={"lab": "http://127.0.0.1:8080/"},
        clusters={"labroot": "s3://lab-bucket/cluster"},
        profiles={
            "lab-admin": Profile("lab-admin", {"cluster": "labroot"}, "kb"),
            "mine": Profile("mine", {"store": "/data/g.omni"}),
            "remote": Profile("remote", {"server": "lab"}),
        },
        aliases={"due": Alias("due", "lab", "due_tasks", "kb", ("since",), {"limit": 5})},
    )


def test_the_example_of_the_page_is_a_configuration(capsys):
    page = ROOT / "docs" / "operator.md"
    example = next(block for block in blocks(page) if block.language == "yaml")
    operator = parse_operator_config(example.text, "config.yaml")
    assert list(operator.profiles) == ["mine", "team", "lab-admin"]
    assert operator.aliases["due"].args == ("since",)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "# nothing\n", "operator:\ndefaults:\nprofiles:\n", "{}"])
def test_an_empty_configuration_is_one(text):
    assert parse_operator_config(text, "c") == OperatorConfig()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("operator: {", "not YAML (line"),
        ("a: b: c", "not YAML (line 1, column 5)"),
        ("when: 2024-99-99", "not YAML"),
        ("- a", "the file must be a map"),
        ("operator: ana", "`operator` must be a map"),
        ("operator: { actor: 7 }", "`operator.actor` must be a string"),
        ("servers: [lab]", "`servers` must be a map"),
        ("servers: { lab: x }", "`servers.lab` must be a map"),
        ("servers: { lab: {} }", "`servers.lab.url` is missing"),
        ("clusters: { c: { root: '' } }", "`clusters.c.root` is missing"),
        ("defaults: { output: xml }", "`defaults.output` is 'xml', not one of table, kv"),
        ("defaults: { output: parquet }", "`defaults.output` is 'parquet'"),
        ("defaults: { table_cell_layout: fold }", "not one of truncate, wrap"),
        ("defaults: { table_max_column_width: wide }", "must be a number above 0"),
        ("defaults: { table_max_column_width: 0 }", "must be a number above 0"),
        ("aliases: { a: { server: x } }", "`aliases.a.query` is missing"),
        ("aliases: { a: { query: x } }", "`aliases.a.server` is missing"),
        ("aliases: { a: { server: s, query: q, args: x } }", "`aliases.a.args` must be a list"),
        (
            "aliases: { a: { server: s, query: q, params: [1] } }",
            "`aliases.a.params` must be a map",
        ),
        ("aliases: { a: { server: s, query: q, format: arrow } }", "`aliases.a.format` is 'arrow'"),
    ],
)
def test_a_malformed_configuration_says_what_is_wrong(text, reason):
    with pytest.raises(InputError) as caught:
        parse_operator_config(text, "home/config.yaml")
    assert caught.value.message.startswith("could not parse operator config 'home/config.yaml': ")
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("defaults: { server: a, store: b }", "binds one entity"),
        ("defaults: { store: b, default_graph: g }", "already a single graph"),
    ],
)
def test_defaults_that_contradict_each_other_are_refused_at_once(desk, text, part):
    desk.config(text)
    desk.run("branch", "list", "--store", "g.omni").fails(part)


ALL_COMMANDS = [
    ("query", "-e", "query q() { match { $p: P } return { $p } }", "--store", "g.omni"),
    ("mutate", "q", "--store", "g.omni"),
    ("load", "g.omni", "--data", "x.jsonl", "--mode", "merge"),
    ("ingest", "g.omni", "--data", "x.jsonl"),
    ("branch", "list", "--uri", "g.omni"),
    ("commit", "list", "g.omni"),
    ("snapshot", "g.omni"),
    ("export", "g.omni"),
    ("schema", "show", "g.omni"),
    ("schema", "apply", "g.omni", "--schema", "s.pg"),
    ("schema", "plan", "g.omni", "--schema", "s.pg"),
    ("lint", "g.omni", "--query", "q.gq"),
    ("optimize", "g.omni"),
    ("repair", "g.omni"),
    ("init", "new.omni", "--schema", "s.pg"),
    ("alias", "due"),
    ("login", "lab", "--token", "t"),
    ("logout", "lab"),
    ("profile", "list"),
    ("profile", "show"),
]


@pytest.mark.parametrize("arguments", ALL_COMMANDS, ids=lambda arguments: " ".join(arguments[:2]))
def test_a_malformed_configuration_stops_a_command_before_it_does_anything(desk, arguments):
    desk.config("defaults: [")
    desk.run(*arguments).fails("could not parse operator config")
    assert [path.name for path in desk.directory.iterdir()] == ["home"]
    assert not desk.credentials.exists()


def test_a_configuration_that_cannot_be_read_is_one_line(desk):
    (desk.home / "config.yaml").mkdir(parents=True)
    desk.run("profile", "list").fails("could not read operator config", "is a directory")
    (desk.home / "config.yaml").rmdir()
    desk.write("home/config.yaml", b"operator: \xff")
    desk.run("profile", "list").fails("could not read operator config", "not UTF-8")


def test_commands_that_need_no_configuration_do_not_look_at_it(desk):
    desk.config("defaults: [")
    assert desk.run("version").works().startswith("omnigraph ")
    desk.write("s.pg", "node A { name: String @key }\n")
    assert desk.run("lint", "--schema", "s.pg").code == 0
    assert desk.run("fmt", "--stdout", "s.pg").code == 0


def test_every_unknown_key_is_one_warning_and_nothing_more(desk):
    desk.config(
        "colour: red\noperator: { actr: x }\ndefaults: { outputs: kv }\n"
        "servers: { lab: { url: 'http://h', token: t } }\n"
        "clusters: { c: { root: r, roots: 1 } }\nprofiles: { p: { store: s, graph: g } }\n"
        "aliases: { a: { server: lab, query: q, branch: b } }\n1: x\n"
    )
    done = desk.run("profile", "list")
    assert done.works() == "p  store: s\n"
    locations = [
        "colour",
        "1",
        "operator.actr",
        "defaults.outputs",
        "servers.lab.token",
        "clusters.c.roots",
        "profiles.p.graph",
        "aliases.a.branch",
    ]
    lines = done.err.splitlines()
    assert [line.split("`")[1] for line in lines] == locations
    assert all(line.startswith("warning: unknown key `") for line in lines)
    assert all(line.endswith("; ignored") for line in lines)


def test_the_old_project_file_is_not_read(desk):
    desk.write("omnigraph.yaml", "defaults: [")
    assert desk.run("profile", "list").works() == "no profiles are defined\n"


def test_without_a_home_directory_the_configuration_is_empty(desk, monkeypatch):
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.setenv("OMNIGRAPH_HOME", "")
    assert desk.run("profile", "list").works() == "no profiles are defined\n"
    desk.run("login", "lab", "--token", "t").fails("no home directory", "OMNIGRAPH_HOME")


# -- profiles -------------------------------------------------------------------------------------

PROFILES = """\
servers: { lab: { url: "http://h:8080/" } }
clusters: { c: { root: /data/cluster } }
defaults: { server: lab, default_graph: main-kb, output: csv }
profiles:
  served: { server: lab, default_graph: kb }
  direct: { server: "https://x/" }
  gone: { server: nowhere }
  ops: { cluster: c }
  raw: { cluster: /other }
  mine: { store: g.omni }
  none: {}
  both: { server: lab, store: g.omni }
"""


def test_profiles_are_listed_as_people_read_them(desk):
    desk.config(PROFILES)
    desk.environ(OMNIGRAPH_PROFILE="ops")
    assert desk.run("profile", "list").works().splitlines() == [
        "served  server: lab · graph: kb",
        "direct  server: https://x/",
        "gone  server: nowhere",
        "ops (active)  cluster: c",
        "raw  cluster: /other",
        "mine  store: g.omni",
        "none  invalid: binds no scope",
        "both  invalid: binds 2 scopes (server, store)",
    ]


def test_profiles_are_listed_as_json(desk):
    desk.config(PROFILES)
    reported = json.loads(desk.run("profile", "list", "--json").works())
    assert isinstance(reported, list)
    assert list(reported[0].items()) == [
        ("name", "served"),
        ("binding", "server: lab"),
        ("scope_kind", "server"),
        ("target", "lab"),
        ("valid", True),
        ("error", None),
        ("default_graph", "kb"),
        ("active", False),
    ]
    assert reported[-1] == {
        "name": "both",
        "binding": "invalid: binds 2 scopes (server, store)",
        "scope_kind": "invalid",
        "target": None,
        "valid": False,
        "error": "binds 2 scopes (server, store)",
        "default_graph": None,
        "active": False,
    }


@pytest.mark.parametrize(
    ("name", "kind", "target", "endpoint", "graph"),
    [
        ("served", "server", "lab", "http://h:8080", "kb"),
        ("direct", "server", "https://x/", "https://x", "main-kb"),
        ("gone", "server", "nowhere", None, "main-kb"),
        ("ops", "cluster", "c", "/data/cluster", "main-kb"),
        ("raw", "cluster", "/other", "/other", "main-kb"),
        ("mine", "store", "g.omni", "g.omni", None),
        ("(defaults)", "server", "lab", "http://h:8080", "main-kb"),
    ],
)
def test_a_profile_is_shown_resolved(desk, name, kind, target, endpoint, graph):
    desk.config(PROFILES)
    given = () if name == "(defaults)" else (name,)
    reported = json.loads(desk.run("profile", "show", *given, "--json").works())
    assert list(reported.items()) == [
        ("name", name),
        ("scope_kind", kind),
        ("target", target),
        ("endpoint", endpoint),
        ("default_graph", graph),
        ("output_format", "csv"),
    ]


def test_a_profile_is_shown_as_people_read_it(desk):
    desk.config(PROFILES)
    assert desk.run("profile", "show", "served").works().splitlines() == [
        "profile: served",
        "  scope:   server lab",
        "  endpoint: http://h:8080",
        "  default graph: kb",
        "  output: csv",
    ]
    assert "not defined" in desk.run("profile", "show", "gone").works()
    desk.environ(OMNIGRAPH_PROFILE="mine")
    assert desk.run("profile", "show").works().startswith("profile: mine\n")


def test_nothing_addressed_is_shown_too(desk):
    reported = json.loads(desk.run("profile", "show", "--json").works())
    assert (reported["name"], reported["scope_kind"], reported["target"]) == (
        "(defaults)",
        "none",
        None,
    )
    assert desk.run("profile", "show").works().splitlines()[1] == "  scope:   none"
    desk.config("defaults: { store: g.omni }")
    assert "  scope:   store g.omni\n" in desk.run("profile", "show").works()


def test_a_profile_that_cannot_be_shown(desk):
    desk.config(PROFILES)
    desk.run("profile", "show", "nobody").fails("unknown profile 'nobody'", "served, direct")
    desk.run("profile", "show", "none").fails("profile 'none' binds no scope")
    desk.run("profile", "show", "both").fails("binds 2 scopes (server, store)")
    assert desk.run("profile").code == 2
    assert desk.run("profile", "drop").code == 2


# -- aliases --------------------------------------------------------------------------------------

ROWS = {
    "query_name": "due_tasks",
    "target": {"branch": "main", "snapshot": None},
    "row_count": 2,
    "columns": ["t.name", "t.n"],
    "rows": [{"t.name": "a", "t.n": 1}, {"t.name": "b", "t.n": None}],
}


@pytest.fixture
def server():
    with stub_server() as stub:
        stub.responses["POST /graphs/kb/queries/due_tasks"] = ROWS
        yield stub


@pytest.fixture
def aliases(desk, server):
    desk.config(
        f"servers: {{ lab: {{ url: '{server.url}/' }} }}\n"
        "defaults: { output: kv }\n"
        "aliases:\n"
        "  due: { server: lab, graph: kb, query: due_tasks, args: [since, limit],"
        " params: { limit: 5, fixed: [1] } }\n"
        "  bare: { server: lab, query: a/b, format: csv }\n"
        "  lost: { server: nowhere, query: q }\n"
    )
    return desk


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        ((), {"limit": 5, "fixed": [1]}),
        (("2024-01-01",), {"limit": 5, "fixed": [1], "since": "2024-01-01"}),
        (("x", "7"), {"limit": 7, "fixed": [1], "since": "x"}),
        (("-5", "-1.5"), {"limit": -1.5, "fixed": [1], "since": -5}),
        (('"5"', "null"), {"limit": None, "fixed": [1], "since": "5"}),
        (('{"a": [1]}', "true"), {"limit": True, "fixed": [1], "since": {"a": [1]}}),
        (
            ("x", "7", "--params", '{"limit": 9, "more": "ü"}'),
            {"limit": 9, "fixed": [1], "since": "x", "more": "ü"},
        ),
    ],
)
def test_parameters_merge_and_arguments_are_json(aliases, server, arguments, params):
    aliases.run("alias", "due", *arguments).works()
    assert server.requested == ["POST /graphs/kb/queries/due_tasks"]
    assert server.requests[0].body == {"params": params, "expect_mutation": False}


def test_no_parameters_are_not_sent(aliases, server):
    server.responses["POST /queries/a%2Fb"] = {**ROWS, "columns": []}
    assert aliases.run("alias", "bare").works() == "t.n,t.name\n1,a\nnull,b\n"
    assert server.requested == ["POST /queries/a%2Fb"]
    assert server.requests[0].body == {"expect_mutation": False}


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ((), "2 rows from branch main via due_tasks"),
        (("--format", "csv"), "t.name,t.n"),
        (("--format", "jsonl"), '{"kind":"metadata",'),
        (("--json",), "{"),
    ],
)
def test_rows_of_an_alias_have_every_text_format(aliases, arguments, first):
    out = aliases.run("alias", "due", *arguments).works()
    assert out.splitlines()[0].startswith(first)
    if "--json" in arguments:
        assert json.loads(out) == ROWS


def test_rows_of_an_alias_go_to_a_file(aliases):
    assert aliases.run("alias", "due", "--format", "csv", "--out", "rows.csv").works() == ""
    assert (aliases.directory / "rows.csv").read_text("utf-8") == "t.name,t.n\na,1\nb,null\n"


def test_an_alias_refuses_what_it_cannot_use(aliases, server):
    aliases.run("alias", "nope").fails("unknown alias 'nope'", "due, bare, lost")
    aliases.run("alias", "due", "1", "2", "3").fails("takes 2 arguments (since, limit), not 3")
    aliases.run("alias", "bare", "1").fails("takes 0 arguments, not 1")
    aliases.run("alias", "lost").fails("unknown server 'nowhere'", "lab")
    aliases.run("alias", "due", "--params", "[1]").fails("--params")
    for wrong in ((), ("due", "--branch", "b"), ("due", "--format", "parquet")):
        assert aliases.run("alias", *wrong).code == 2
    assert server.requested == []


def test_an_alias_rejects_every_flag_that_it_brings_itself(aliases, server):
    done = aliases.run(
        "alias", "due", "--server", "s", "--graph", "g", "--store", "x", "--as", "a",
        "--cluster", "c", "--profile", "p",
    )  # fmt: skip
    done.fails("Error: `alias` uses the server, graph, and stored query")
    for flag in ("--server", "--graph", "--store", "--cluster", "--profile", "--as"):
        assert flag in done.err
        one = aliases.run("alias", "due", flag, "x")
        one.fails("`alias` uses the server, graph, and stored query", flag)
    assert server.requested == []


def test_what_the_server_says_about_an_alias_is_shown(aliases, server):
    text = "'due_tasks' is a mutation — use omnigraph mutate due_tasks"
    server.responses["POST /graphs/kb/queries/due_tasks"] = (400, {"error": text, "code": "x"})
    aliases.run("alias", "due", "--json").fails(f"Error: {text}\n")


def test_an_alias_as_a_process(server, tmp_path):
    location = Workspace(tmp_path)
    home = tmp_path / ".operator"
    home.mkdir()
    (home / "config.yaml").write_text(
        f"servers: {{ lab: {{ url: '{server.url}' }} }}\n"
        "aliases: { due: { server: lab, graph: kb, query: due_tasks } }\n"
    )
    done = location.process("alias", "due", OMNIGRAPH_TOKEN_LAB="s3cret")
    assert done.stdout.startswith("2 rows from branch main via due_tasks\n")
    assert server.requests[0].token == "Bearer s3cret"
    assert_fails(location.process("alias", "nope"), "unknown alias 'nope'")
