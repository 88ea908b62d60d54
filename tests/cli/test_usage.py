"""A wrong use of options exits with 2, before anything is opened."""

from __future__ import annotations

import pytest

from tests.cli.desk import Desk

Q = ("query", "--store", "g", "-e", "query q() { match { $p: P } return { $p.name } }")
WRONG = [
    (("load", "g", "--data", "f", "--mode", "merge", "--max-rejects", "-1"), "at least 0"),
    (("load", "g", "--data", "f", "--mode", "merge", "--max-rejects", "x"), "invalid number 'x'"),
    (("load", "g", "--data", "-", "--data", "f", "--mode", "merge"), "cannot be combined"),
    ((*Q, "--timeout", "-5"), "--timeout: must be"),
    ((*Q, "--timeout", "nan"), "--timeout: must be"),
    ((*Q, "--timeout", "inf"), "--timeout: must be"),
    ((*Q, "--timeout", "soon"), "invalid number 'soon'"),
    ((*Q, "--max-rows", "-1"), "--max-rows: must be at least 0"),
    ((*Q, "--max-rows", "9" * 5_000), "invalid number"),
    ((*Q, "--master", "local[1]"), "--master cannot be combined with --engine local"),
    (("cleanup", "g", "--keep", "-1"), "--keep: must be at least 0"),
    (("backup", "prune", "b", "--keep", "-1"), "--keep: must be at least 0"),
    (("backup", "prune", "b", "--keep", "1", "--point", "p"), "--point cannot be combined"),
    (("backup", "prune", "b", "--older-than", "1d", "--point", "p"), "--point cannot be combined"),
    (("commit", "list", "g", "--limit", "0"), "--limit: must be at least 1"),
    (("commit", "changes", "--uri", "g", "id", "--limit", "0"), "--limit: must be at least 1"),
    (("changes", "poll", "--uri", "g", "--limit", "-1"), "--limit: must be at least 1"),
    (("changes", "poll", "--uri", "g", "--interval", "nan"), "--interval: must be"),
    (("log", "g", "--limit", "0"), "--limit: must be at least 1"),
    (("blob", "get", "node", "P", "x", "p", "--offset", "-1"), "--offset: must be at least 0"),
    (("blob", "get", "node", "P", "x", "p", "--length", "-1"), "--length: must be at least 0"),
    (("lint",), "nothing to check"),
    (("lint", "g", "--schema", "s.pg"), "mutually exclusive"),
    (("lint", "g", "--schema", "s.pg", "--query", "q.gq"), "mutually exclusive"),
    (("lint", "--store", "g", "--schema", "s.pg"), "mutually exclusive"),
    (("explain", "-e", "query q() { }", "--schema", "s.pg", "--store", "g"), "mutually exclusive"),
    (
        ("explain", "-e", "query q() { }", "--schema", "s.pg", "--analyze"),
        "--analyze needs a graph",
    ),
    (
        ("explain", "-e", "query q() { }", "--schema", "s.pg", "--branch", "b"),
        "--branch needs a graph",
    ),
    (("repair", "g", "--force"), "--force needs --confirm"),
]


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    return Desk(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(("arguments", "text"), WRONG)
def test_wrong_usage_exits_2(desk, arguments, text):
    done = desk.run(*arguments)
    assert (done.code, done.out) == (2, ""), done
    assert text in done.err


def test_two_addresses_of_a_graph_are_a_failure_and_not_a_usage_error(desk):
    desk.run("snapshot", "g", "--store", "g").fails("mutually exclusive")
