"""A text or the path of one: what a caller gave."""

from __future__ import annotations

import pytest

from omnigraph.api.arguments import source_of
from omnigraph.errors import InputError


@pytest.mark.parametrize("text", ["", "  ", "// a comment", "/* one */", "query q() { }", "a\nb"])
def test_what_can_only_be_text_is_text(text):
    assert source_of(text, "<query>").text == text


def test_anything_else_is_a_path(tmp_path):
    path = tmp_path / "q.gq"
    path.write_text("query q() { }")
    assert source_of(str(path), "<query>").text == "query q() { }"
    with pytest.raises(InputError, match=r"cannot read 'missing\.gq': no such file"):
        source_of("missing.gq", "<query>")


def test_a_file_whose_path_begins_like_a_comment_is_read(tmp_path):
    path = tmp_path / "q.gq"
    path.write_text("query q() { }")
    assert source_of(f"/{path}", "<query>").text == "query q() { }"
