"""Tokens: the file that keeps them, who may read it, and which server gets which."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from omnigraph.cli.credentials import (
    credentials_path,
    find_token,
    match_server,
    read_token,
    remove_token,
    store_token,
)
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.errors import InputError
from tests.cli.desk import Desk
from tests.cli.workspace import Workspace, assert_fails

TWO = "[lab]\ntoken = abc\n\n# about prod\n[prod]\nother = 1\ntoken = xyz\n"


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    return Desk(tmp_path, monkeypatch, capsys)


def keep(desk, text: str, mode: int = 0o600) -> None:
    desk.write("home/credentials", text).chmod(mode)


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("[lab]\ntoken = abc123\n", "abc123"),
        ("[lab]\ntoken=abc\n", "abc"),
        ("[lab]\ntoken = 'a b'\n", "a b"),
        ('[lab]\ntoken = "abc"\n', "abc"),
        ("[lab]\ntoken = \"abc'\n", "\"abc'"),
        ("# token = no\n\n[lab]\n# token = no\ntoken = abc\n", "abc"),
        ("[lab]\ntoken = first\ntoken = second\n", "first"),
        ("[lab]\ntoken =\ntoken = second\n", ""),
        ("[lab]\nother = 1\n", ""),
        ("[other]\ntoken = abc\n", ""),
        ("[other]\ntoken = no\n[lab]\ntoken = abc\n[third]\ntoken = no\n", "abc"),
        ("[lab]\r\ntoken = abc\r\n", "abc"),
        ("[ lab ]\n  token = a=b\n", "a=b"),
        ("token = nobody\n", ""),
        ("", ""),
    ],
)
def test_a_token_is_found(desk, text, token):
    keep(desk, text)
    assert read_token("lab") == token


def test_without_a_file_there_is_no_token(desk):
    assert read_token("lab") == ""
    assert not desk.home.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o622, 0o644, 0o666])
def test_a_file_that_others_can_reach_is_refused_on_every_use(desk, mode):
    keep(desk, TWO, mode)
    for use in (
        lambda: read_token("lab"),
        lambda: store_token("lab", "new"),
        lambda: remove_token("lab"),
    ):
        with pytest.raises(InputError, match="group/world-accessible") as caught:
            use()
        assert "chmod 600" in (caught.value.hint or "")
    assert desk.credentials.read_text("utf-8") == TWO


def test_a_token_is_stored_in_a_new_private_file(desk):
    old = os.umask(0)
    try:
        path = store_token("lab", "abc")
    finally:
        os.umask(old)
    assert path == credentials_path() == desk.credentials
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text("utf-8") == "[lab]\ntoken = abc\n"
    assert os.listdir(desk.home) == ["credentials"]


def test_storing_keeps_all_other_lines(desk):
    keep(desk, TWO)
    store_token("lab", "new")
    kept = "# about prod\n[prod]\nother = 1\ntoken = xyz\n"
    assert desk.credentials.read_text("utf-8") == f"{kept}\n[lab]\ntoken = new\n"
    store_token("lab", "newer")
    assert desk.credentials.read_text("utf-8") == f"{kept}\n[lab]\ntoken = newer\n"
    store_token("prod", "p")
    assert (read_token("lab"), read_token("prod")) == ("newer", "p")


@pytest.mark.parametrize("odd", [b"# caf\xe9\n[prod]\r\ntoken = x\r\n", b"no section\n", b"[a"])
def test_odd_lines_stay_byte_for_byte(desk, odd):
    desk.write("home/credentials", odd).chmod(0o600)
    store_token("lab", "abc")
    assert desk.credentials.read_bytes().startswith(odd)
    assert read_token("lab") == "abc"
    remove_token("lab")
    assert desk.credentials.read_bytes().rstrip(b"\n") == odd.rstrip(b"\n")


@pytest.mark.parametrize("token", ["abc", '"abc"', "'a'", "#x", "a=b", "a b"])
def test_a_stored_token_is_the_one_that_is_found(desk, token):
    store_token("lab", token)
    assert read_token("lab") == token


def test_removing_takes_only_the_section(desk):
    keep(desk, TWO)
    remove_token("lab")
    assert desk.credentials.read_text("utf-8") == TWO.split("\n\n")[1]
    remove_token("lab")
    remove_token("nobody")
    assert desk.credentials.read_text("utf-8") == TWO.split("\n\n")[1]


def test_a_link_to_the_file_stays_one(desk):
    real = desk.write("elsewhere/tokens", "")
    real.chmod(0o600)
    desk.home.mkdir()
    desk.credentials.symlink_to(real)
    store_token("lab", "abc")
    assert desk.credentials.is_symlink()
    assert real.read_text("utf-8") == "[lab]\ntoken = abc\n"


def test_logins_at_the_same_time_lose_nothing(desk):
    names = [f"server{number}" for number in range(12)]
    threads = [threading.Thread(target=store_token, args=(name, f"t-{name}")) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read_token(name) for name in names] == [f"t-{name}" for name in names]


def test_what_cannot_be_written_is_one_line(desk):
    desk.write("home", "a file where a directory should be")
    desk.run("login", "lab", "--token", "abc").fails("could not")


# -- which token goes with a request --------------------------------------------------------------

SERVERS = OperatorConfig(
    servers={
        "http": "http://h:80",
        "alt": "http://h:8080",
        "lab": "http://lab.example/",
        "my-kb": "http://lab.example/graphs/kb",
    }
)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("http://h:80", "http"),
        ("http://h:80/", "http"),
        ("http://h:80/graphs/kb", "http"),
        ("http://h:8080", "alt"),
        ("http://h:8080/graphs/kb", "alt"),
        ("http://h:8", None),
        ("http://h", None),
        ("https://h:80", None),
        ("http://lab.example", "lab"),
        ("http://lab.example.evil", None),
        ("http://lab.example/graphs/other", "lab"),
        ("http://lab.example/graphs/kb", "my-kb"),
        ("http://lab.example/graphs/kb/queries", "my-kb"),
        ("http://lab.example/graphs/kb2", "lab"),
    ],
)
def test_an_address_belongs_to_the_longest_server_that_fits(base, name):
    assert match_server(base, SERVERS) == name


def test_the_variable_of_a_server_goes_before_the_file_and_that_before_the_common_one(desk):
    kb = "http://lab.example/graphs/kb"
    assert find_token(kb, SERVERS) == ""
    desk.environ(OMNIGRAPH_BEARER_TOKEN=" common ")
    assert find_token(kb, SERVERS) == "common"
    keep(desk, "[my-kb]\ntoken = kept\n[lab]\ntoken = lab\n")
    assert find_token(kb, SERVERS) == "kept"
    desk.environ(OMNIGRAPH_TOKEN_MY_KB="  ")
    assert find_token(kb, SERVERS) == "kept"
    desk.environ(OMNIGRAPH_TOKEN_MY_KB=" own ")
    assert find_token(kb, SERVERS) == "own"
    assert find_token("http://lab.example", SERVERS) == "lab"
    assert find_token("http://elsewhere", SERVERS) == "common"


# -- login and logout -----------------------------------------------------------------------------


def test_login_stores_and_says_where(desk):
    desk.config("servers: { lab: { url: 'http://127.0.0.1:1' } }")
    done = desk.run("login", "lab", "--token", " abc ")
    assert done.works() == f"stored credential for 'lab' in {desk.credentials}\n"
    assert done.err == ""
    assert read_token("lab") == "abc"


def test_login_as_json(desk):
    done = desk.run("login", "lab", "--token", "s3cret", "--json")
    reported = json.loads(done.works())
    assert reported == {
        "server": "lab",
        "credentials_path": str(desk.credentials),
        "declared": False,
    }
    assert list(reported) == ["server", "credentials_path", "declared"]
    assert done.err.startswith("note: 'lab' is not among the servers")
    assert "s3cret" not in done.out + done.err


def test_login_takes_the_first_line_of_stdin(desk):
    assert desk.run("login", "lab", stdin=" abc \nmore\n").code == 0
    assert read_token("lab") == "abc"


@pytest.mark.parametrize("stdin", ["", "\n", "  \nabc\n"])
def test_login_without_a_token_fails(desk, stdin):
    desk.run("login", "lab", stdin=stdin).fails("no token provided")
    desk.run("login", "lab", "--token", " ").fails("no token provided")
    assert not desk.credentials.exists()


@pytest.mark.parametrize("name", ["", " ", "a]", "[a", "a\nb"])
def test_a_name_that_would_break_the_file_is_refused(desk, name):
    desk.run("login", name, "--token", "abc").fails("invalid server name")
    desk.run("logout", name).fails("invalid server name")


def test_a_token_that_cannot_be_sent_is_refused_unseen(desk):
    done = desk.run("login", "lab", "--token", "ab\x00cd\x1b")
    done.fails("cannot be sent")
    assert "cd" not in done.err
    assert not desk.credentials.exists()


def test_logout_forgets_and_is_content_when_there_is_nothing(desk):
    said = f"removed credential for 'lab' from {desk.credentials}\n"
    assert desk.run("logout", "lab").works() == said
    assert not desk.home.exists()
    desk.run("login", "lab", "--token", "abc")
    reported = json.loads(desk.run("logout", "lab", "--json").works())
    assert list(reported.items()) == [
        ("server", "lab"),
        ("credentials_path", str(desk.credentials)),
    ]
    assert read_token("lab") == ""
    assert desk.run("logout", "lab").works() == said


@pytest.mark.parametrize("command", [("login",), ("logout",), ("login", "a", "b"), ("login", "-x")])
def test_wrong_usage_of_login_exits_2(desk, command):
    done = desk.run(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: omnigraph")


def test_a_home_can_start_with_a_tilde(desk, monkeypatch):
    monkeypatch.setenv("HOME", str(desk.directory))
    monkeypatch.setenv("OMNIGRAPH_HOME", "~/own")
    store_token("lab", "abc")
    assert (desk.directory / "own" / "credentials").is_file()
    monkeypatch.setenv("OMNIGRAPH_HOME", "")
    store_token("lab", "abc")
    assert (desk.directory / ".omnigraph" / "credentials").is_file()


def test_a_token_that_is_typed_is_not_shown(tmp_path):
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli", "login", "lab"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMNIGRAPH_HOME": str(tmp_path)},
        start_new_session=True,
    )
    with process, os.fdopen(ours, "rb+", buffering=0) as keyboard:
        assert process.stderr is not None
        assert process.stderr.read(len("token for lab: ")) == b"token for lab: "
        keyboard.write(b"s3cret\n")
        out, err = process.communicate(timeout=60)
        os.write(theirs, b"end")
        shown = keyboard.read(100)
        os.close(theirs)
    assert process.returncode == 0
    assert b"s3cret" not in out + err + shown
    assert (tmp_path / "credentials").read_text("utf-8") == "[lab]\ntoken = s3cret\n"


def test_login_as_a_process(tmp_path):
    location = Workspace(tmp_path)
    done = location.process("login", "lab", stdin=b"abc\n")
    path = tmp_path / ".operator" / "credentials"
    assert (done.returncode, done.stdout) == (0, f"stored credential for 'lab' in {path}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert_fails(location.process("logout", "lab"), "group/world-accessible")
