"""Bearer tokens: where they come from, what is refused, and how they are compared."""

from __future__ import annotations

import json
import re

import pytest

from omnigraph.errors import ServerNotReady
from omnigraph.server import tokens
from omnigraph.server.tokens import TokenTable
from omnigraph.settings import Settings

ONE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
TEXT = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
AWS = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
SECRET = "s3cr3t-value"


def table(**variables: str) -> TokenTable:
    return TokenTable.from_settings(Settings.from_environ(variables))


def test_without_a_source_there_are_no_tokens():
    assert table().is_empty
    assert table(**{ONE: "  ", TEXT: ""}).is_empty
    assert table().actor_of("") is None


def test_the_single_token_is_the_one_of_the_actor_default():
    single = table(**{ONE: f"  {SECRET} "})
    assert single.actors == ("default",)
    assert single.actor_of(SECRET) == "default"
    assert single.actor_of(f"{SECRET} ") is None
    assert not single.is_empty


def test_the_single_token_is_added_to_the_others():
    both = table(**{ONE: "a", TEXT: '{"ana": "b"}'})
    assert both.actors == ("ana", "default")
    assert (both.actor_of("a"), both.actor_of("b")) == ("default", "ana")


def test_a_file_goes_before_the_text(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{" ana ": " one "}')
    source = table(**{FILE: str(file), TEXT: '{"bo": "two"}'})
    assert source.actors == ("ana",)
    assert source.actor_of("one") == "ana"
    assert source.files == (file,)


def test_a_reload_reads_the_file_again(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"ana": "one"}')
    settings = Settings.from_environ({FILE: str(file)})
    before = TokenTable.from_settings(settings)
    file.write_text('{"ana": "two"}')
    after = TokenTable.from_settings(settings)
    assert (before.actor_of("one"), before.actor_of("two")) == ("ana", None)
    assert (after.actor_of("one"), after.actor_of("two")) == (None, "ana")
    assert before != after
    assert after == TokenTable.from_settings(settings)


REFUSALS = {
    "": "is not a JSON object",
    "[]": "is not a JSON object",
    "{": "is not a JSON object",
    '{"ana": 1}': "is not a JSON object",
    '{"ana": null}': "is not a JSON object",
    '{"ana": {"x": "y"}}': "is not a JSON object",
    '[["ana", "s3cr3t-value"]]': "is not a JSON object",
    "[" * 100_000: "is not a JSON object",
    f'{{" ": "{SECRET}"}}': "the name of an actor is blank",
    '{"ana": "  "}': "the token of actor 'ana' is blank",
    f'{{"ana": "{SECRET}", "ana": "x"}}': "actor 'ana' has more than one token",
    f'{{"ana": "{SECRET}", " ana ": "x"}}': "actor 'ana' has more than one token",
    f'{{"ana": "{SECRET}", "bo": " {SECRET} "}}': "the token of actor 'bo' has another actor too",
    f'{{"omnigraph:recovery": "{SECRET}"}}': "reserved or too long",
    f'{{"{"x" * 1001}": "{SECRET}"}}': "reserved or too long",
    f'{{"a\\u0007b": "{SECRET}"}}': "cannot hold control characters",
}


@pytest.mark.parametrize("text", REFUSALS, ids=lambda text: text[:30])
def test_tokens_are_refused_without_being_shown(text, tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text(text)
    with pytest.raises(ServerNotReady, match=re.escape(REFUSALS[text])) as refusal:
        table(**{FILE: str(file)})
    shown = json.dumps(refusal.value.to_json()) + repr(refusal.value)
    assert SECRET not in shown


def test_the_single_actor_can_be_named_only_once():
    with pytest.raises(ServerNotReady, match="actor 'default' has more than one token"):
        table(**{ONE: "a", TEXT: '{"default": "b"}'})
    with pytest.raises(ServerNotReady, match="has another actor too"):
        table(**{ONE: "a", TEXT: '{"ana": "a"}'})


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(ServerNotReady, match=r"cannot read '.*none': no such file"):
        table(**{FILE: str(tmp_path / "none")})
    with pytest.raises(ServerNotReady, match="is a directory"):
        table(**{FILE: str(tmp_path)})
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(ServerNotReady, match="is not UTF-8"):
        table(**{FILE: str(tmp_path / "latin")})


def test_a_secret_of_aws_is_never_ignored():
    with pytest.raises(ServerNotReady, match=AWS):
        table(**{AWS: "arn:secret", ONE: "a"})


def test_only_digests_are_kept():
    whole = TokenTable({"ana": SECRET})
    kept = [getattr(whole, name) for name in vars(whole)]
    assert SECRET not in repr(kept)
    assert SECRET not in repr(whole)
    assert SECRET not in str(vars(whole))
    settings = Settings.from_environ({ONE: SECRET, TEXT: f'{{"ana": "{SECRET}2"}}'})
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("presented", ["t0", "t7", "t15", "no", "", "x" * 10_000, "\udcff", "é"])
def test_every_entry_is_compared_whatever_is_presented(presented, monkeypatch):
    """By construction the work does not depend on which entry matches, nor on whether one does."""
    whole = TokenTable({f"a{number}": f"t{number}" for number in range(16)})
    compared = []

    def counting(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(tokens, "compare_digest", counting)
    actor = whole.actor_of(presented)
    assert actor == (f"a{presented[1:]}" if presented[:1] == "t" else None)
    assert compared == [(32, 32)] * 16


def test_bytes_and_text_are_the_same_token():
    assert TokenTable({"ana": "tökén"}).actor_of("tökén".encode()) == "ana"
