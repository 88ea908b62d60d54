"""Stored queries of a server by name, and who gets which token."""

from __future__ import annotations

import json
import os
import socket

import pytest

from tests.cli.desk import Desk
from tests.cli.workspace import Workspace, assert_fails
from tests.client.stub import DROP, stub_server

READ = {
    "query_name": "due",
    "target": {"branch": "main", "snapshot": None},
    "row_count": 1,
    "columns": ["t.name"],
    "rows": [{"t.name": "Zoë, x"}],
}
CHANGE = {
    "branch": "main",
    "query_name": "close",
    "affected_nodes": 2,
    "affected_edges": 1,
    "actor_id": "ana",
}
KB = ("--server", "lab", "--graph", "kb")


@pytest.fixture
def server():
    with stub_server() as stub:
        stub.responses["POST /graphs/kb/queries/due"] = READ
        stub.responses["POST /graphs/kb/queries/close"] = CHANGE
        yield stub


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys, server):
    desk = Desk(tmp_path, monkeypatch, capsys)
    desk.config(f"servers: {{ lab: {{ url: '{server.url}/' }} }}\noperator: {{ actor: me }}\n")
    return desk


# -- query NAME -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ((), {}),
        (("--params", '{"since": "2024"}'), {"params": {"since": "2024"}}),
        (("--params-file", "p.json"), {"params": {"n": 1}}),
        (("--branch", "work"), {"branch": "work"}),
        (("--snapshot", "01ABC"), {"snapshot": "01ABC"}),
    ],
)
def test_a_stored_query_is_asked_by_name(desk, server, arguments, body):
    desk.write("p.json", '{"n": 1}')
    desk.run("query", "due", *KB, *arguments).works()
    assert server.requested == ["POST /graphs/kb/queries/due"]
    assert server.requests[0].body == {**body, "expect_mutation": False}


def test_rows_of_a_server_look_like_those_of_a_store(desk):
    assert desk.run("query", "due", *KB).works() == (
        "1 rows from branch main via due\nt.name\n------\nZoë, x\n"
    )
    assert json.loads(desk.run("query", "due", *KB, "--json").works()) == READ
    assert desk.run("query", "due", *KB, "--format", "csv").works() == 't.name\n"Zoë, x"\n'
    assert desk.run("query", "due", *KB, "--format", "kv", "--out", "f").works() == ""
    assert (desk.directory / "f").read_text("utf-8").endswith("t.name: Zoë, x\n")


@pytest.mark.parametrize(
    ("option", "label"),
    [
        (("--engine", "spark"), "query --engine spark"),
    ],
)
def test_what_only_a_store_can_do_is_refused_before_the_server_is_asked(
    desk, server, option, label
):
    desk.run("query", "due", *KB, *option).fails(
        f"`{label}` through a server is not supported yet", "--store"
    )
    assert server.requested == []


def test_a_limit_of_rows_holds_for_those_of_a_server(desk, server):
    desk.run("query", "due", *KB, "--max-rows", "1").works()
    desk.run("query", "due", *KB, "--max-rows", "0").fails("more than 0 rows", "--max-rows")


def test_a_server_without_arrow_is_named_as_such(desk, server):
    desk.run("query", "due", *KB, "--format", "arrow", "--out", "f").fails(
        "does not return rows as Arrow"
    )
    assert server.requests[0].headers["Accept"] == "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize(
    "command",
    [
        ("shell",),
    ],
)
def test_a_command_that_needs_storage_asks_no_server(desk, server, command):
    desk.run(*command, *KB).fails("through a server is not supported yet", "--store")
    assert server.requested == []


@pytest.mark.parametrize(
    "arguments", [("query",), ("mutate",), ("query", "--params", "{}"), ("mutate", *KB)]
)
def test_a_query_needs_a_name_or_a_text(desk, arguments):
    desk.run(*arguments).fails("Error: provide a query name")


def test_a_name_alone_needs_a_server(desk):
    for command in ("query", "mutate"):
        desk.run(command, "due", "--store", "g.omni").fails("by-name invocation needs a server")


# -- mutate NAME ----------------------------------------------------------------------------------


def test_a_stored_mutation_is_run_by_name(desk, server):
    done = desk.run("mutate", "close", *KB, "--params", '{"id": 7}')
    assert done.works() == "changed main via close: 2 nodes, 1 edges\nactor_id: ana\n"
    assert done.err == f"omnigraph mutate → {server.url}/graphs/kb (served)\n"
    assert server.requests[0].body == {
        "params": {"id": 7},
        "branch": "main",
        "expect_mutation": True,
    }
    reported = desk.run("mutate", "close", *KB, "--json", "--branch", "work", "--quiet")
    assert (json.loads(reported.works()), reported.err) == ({**CHANGE, "commit_id": None}, "")
    assert server.requests[1].body == {"branch": "work", "expect_mutation": True}


def test_the_conditions_of_a_write_are_headers(desk, server):
    desk.run("mutate", "close", *KB, "--if-commit", "01A", "--idempotency-key", "k").works()
    headers = server.requests[0].headers
    assert (headers["Omnigraph-If-Graph-Commit"], headers["Idempotency-Key"]) == ("01A", "k")


def test_a_mutation_text_is_sent_as_it_is(desk, server):
    server.responses["POST /graphs/kb/mutate"] = {**CHANGE, "query_name": "q"}
    text = "query q($n: String) { delete P where name = $n }"
    done = desk.run("mutate", "-e", text, *KB, "--params", '{"n": "x"}', "--quiet")
    assert done.works().startswith("changed main via q: 2 nodes, 1 edges\n")
    assert server.requests[0].body == {
        "query": f"{text}\n",
        "params": {"n": "x"},
        "branch": "main",
    }


def test_an_error_in_a_query_shows_where(desk, server):
    finding = {
        "severity": "error",
        "phase": "type",
        "code": "T1",
        "message": "unknown node type `No`",
        "hint": None,
        "file": "<query>",
        "line": 1,
        "column": 23,
        "end_line": 1,
        "end_column": 25,
        "span": {"start": 22, "end": 24},
    }
    body = {"error": "…", "code": "bad_request", "reason": "query_invalid", "diagnostic": finding}
    server.responses["POST /graphs/kb/query"] = (400, body)
    desk.write("q.gq", "query q() { match { $p: No } return { $p } }")
    done = desk.run("query", "--query", "q.gq", *KB)
    done.fails("q.gq:1:23: type error: T1: unknown node type `No`", "                      ^^")


def test_a_served_write_reads_no_local_file(desk, server):
    desk.run("mutate", "close", *KB, "--allow-local-files").fails(
        "`--allow-local-files` is not allowed on a served write"
    )
    assert server.requested == []


def test_a_served_write_has_no_other_actor(desk, server):
    desk.run("mutate", "close", "--server", "lab", "--as", "bo").fails(
        "`--as` is not allowed on a served write"
    )
    assert server.requested == []


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ((400, {"error": "'due' is a mutation — use omnigraph mutate due"}), 1, "is a mutation"),
        ((404, {"error": "stored query not found", "code": "not_found"}), 1, "stored query not"),
        ((409, {"error": "stale view of 'x'", "code": "conflict"}), 3, "stale view of 'x'"),
        ((412, {"error": "the head moved"}), 4, "the head moved"),
        ((401, {"error": "unauthorized"}), 1, "omnigraph login"),
        ((502, b"bad gateway"), 1, "Error: server returned 502: bad gateway"),
        ((422, b""), 1, "Error: server returned 422: "),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), 1, "server returned 302"),
        ((200, b"hello"), 1, "unexpected response"),
        ({"rows": []}, 1, "unexpected response"),
        ({**READ, "rows": [1]}, 1, "unexpected response"),
        ({**READ, "columns": 5}, 1, "unexpected response"),
        ({**READ, "columns": [1]}, 1, "unexpected response"),
        ({**READ, "target": None}, 1, "unexpected response"),
        ([], 1, "unexpected response"),
        (DROP, 1, "broke before the server responded"),
    ],
)
def test_a_failure_of_the_server_is_one_error(desk, server, answer, code, text):
    server.responses["POST /graphs/kb/queries/due"] = answer
    done = desk.run("query", "due", *KB, "--json")
    done.fails(text, code=code)
    assert done.err.startswith("Error: ")


def test_a_mutation_without_an_answer_is_not_repeated_lightly(desk, server):
    server.responses["POST /graphs/kb/queries/close"] = DROP
    desk.run("mutate", "close", *KB).fails("before you repeat it", "outcome_pending")
    server.responses["POST /graphs/kb/queries/close"] = READ
    desk.run("mutate", "close", *KB).fails("unexpected response")


def test_a_server_that_is_not_there_is_one_error(desk):
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{kept.getsockname()[1]}"
        done = desk.run("query", "due", "--server", url)
    done.fails(f"Error: the server at {url} cannot be reached", "hint: ", "server_unavailable")
    assert "refused" not in done.err.lower()


# -- tokens ---------------------------------------------------------------------------------------


def test_each_server_gets_its_own_token_only(desk, server):
    with stub_server() as other:
        other.responses["POST /queries/due"] = READ
        desk.config(
            f"servers:\n  lab: {{ url: '{server.url}' }}\n  far: {{ url: '{other.url}' }}\n"
            f"  trap: {{ url: '{other.url[:-1]}' }}\n"
        )
        for name in ("lab", "trap"):
            desk.run("login", name, "--token", f"token-of-{name}").works()
        desk.run("query", "due", *KB).works()
        desk.run("query", "due", "--server", "far").works()
        desk.run("query", "due", "--server", other.url).works()
        assert [request.token for request in server.requests] == ["Bearer token-of-lab"]
        assert {request.token for request in other.requests} == {None}
        desk.environ(OMNIGRAPH_TOKEN_FAR="own", OMNIGRAPH_BEARER_TOKEN="common")
        desk.run("query", "due", "--server", other.url).works()
        assert other.requests[-1].token == "Bearer own"
        desk.run("query", "due", *KB).works()
        assert server.requests[-1].token == "Bearer token-of-lab"


def test_the_probe_carries_the_token_too(desk, server):
    desk.environ(OMNIGRAPH_BEARER_TOKEN=" common ")
    server.responses["GET /graphs"] = {"graphs": [{"graph_id": "kb", "uri": "u"}]}
    desk.run("query", "due", "--server", "lab").fails("pass --graph <id>")
    assert server.requests[0].token == "Bearer common"


def test_a_token_is_in_no_output(desk, server):
    desk.environ(OMNIGRAPH_TOKEN_LAB="s3cret")
    server.responses["POST /graphs/kb/queries/due"] = (400, {"error": "token s3cret is old"})
    done = desk.run("query", "due", *KB)
    done.fails("token *** is old")
    assert "s3cret" not in done.err


def test_credentials_that_others_can_read_stop_every_remote_command(desk, server):
    desk.run("login", "lab", stdin="abc\n").works()
    desk.run("query", "due", *KB).works()
    assert server.requests[-1].token == "Bearer abc"
    os.chmod(desk.credentials, 0o644)
    count = len(server.requests)
    for arguments in (("query", "due", *KB), ("query", "due", "--server", "lab")):
        desk.run(*arguments).fails("group/world-accessible", "chmod 600")
    assert len(server.requests) == count


def test_warnings_of_the_configuration_come_once(desk, server):
    desk.config(f"servers: {{ lab: {{ url: '{server.url}', colour: red }} }}\n")
    done = desk.run("mutate", "close", *KB, "--quiet")
    assert done.works()
    assert done.err.count("unknown key `servers.lab.colour`") == 1


# -- as a process ---------------------------------------------------------------------------------


def test_query_and_mutate_through_a_server_as_processes(server, tmp_path):
    location = Workspace(tmp_path)
    served = ("--server", server.url, "--graph", "kb")
    done = location.process("query", "due", *served, "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, READ, "")
    done = location.process("mutate", "close", *served)
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "changed main via close: 2 nodes, 1 edges",
    )
    assert_fails(location.process("query", "nope", *served), "server returned 404: ")
    assert_fails(location.process("query", "due", "--store", server.url), "must be addressed with")


# -- graphs list ----------------------------------------------------------------------------------


def test_the_graphs_of_a_server_are_listed(desk, server):
    graphs = [{"graph_id": "kb", "uri": "s3://b/kb"}, {"graph_id": "a", "uri": "/a"}]
    server.responses["GET /graphs"] = {"graphs": graphs}
    assert desk.run("graphs", "list", "--server", "lab").works() == "a\t/a\nkb\ts3://b/kb\n"
    reported = json.loads(desk.run("graphs", "list", "--server", "lab", "--json").works())
    assert reported == {"graphs": [graphs[1], graphs[0]]}


def test_graphs_are_only_listed_by_a_server(desk, server):
    desk.run("graphs", "list", "--store", "g.omni").fails("does not apply")
    desk.config("defaults: { store: g.omni }\n")
    desk.run("graphs", "list").fails("requires a remote multi-graph server")
    server.responses["GET /graphs"] = {"graphs": [3]}
    desk.run("graphs", "list", "--server", server.url).fails("server")
