"""Choosing a query of a file, and what a caller may run."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError, QueryError, QueryNotFound
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan import Expect, compile_query

CATALOG = compile_schema("node Person { name: String @key }")
READ = "query people() { match { $p: Person } return { $p.name } }"
WRITE = "query add($n: String) { insert Person { name: $n } }"


def file(*queries):
    return read_queries(Source("q.gq", "\n".join(queries)))


def test_the_only_query_needs_no_name():
    assert select_query(file(READ)).name == "people"


def test_a_query_is_found_by_name():
    assert select_query(file(READ, WRITE), "add").name == "add"


def test_several_queries_need_a_name():
    with pytest.raises(InputError, match="query file contains multiple queries; name one of them"):
        select_query(file(READ, WRITE))


@pytest.mark.parametrize("name", [None, "people"])
def test_an_empty_file_has_nothing_to_select(name):
    with pytest.raises(InputError, match="the text contains no query") as caught:
        select_query(file(), name)
    assert "query name()" in caught.value.hint


def test_an_unknown_name_is_refused_with_the_closest_one():
    with pytest.raises(QueryNotFound, match="query 'peple' not found") as caught:
        select_query(file(READ, WRITE), "peple")
    assert caught.value.hint == "did you mean `people`?"


def test_two_queries_of_one_name_are_refused():
    with pytest.raises(QueryError, match="already declared in line 1") as caught:
        file(READ, WRITE, READ)
    assert caught.value.diagnostics[0].source.position(caught.value.diagnostics[0].span.start) == (
        3,
        7,
    )


@pytest.mark.parametrize(
    ("text", "expect", "message"),
    [
        (WRITE, Expect.READ, "mutation query cannot be typechecked with read-query API"),
        (READ, Expect.MUTATION, "mutation execution called on a read query; use query instead"),
    ],
)
def test_a_query_of_the_wrong_kind_is_refused(text, expect, message):
    with pytest.raises(InputError, match=message):
        compile_query(CATALOG, text, expect=expect)


@pytest.mark.parametrize(("text", "expect"), [(READ, Expect.READ), (WRITE, Expect.MUTATION)])
def test_a_query_of_the_right_kind_is_compiled(text, expect):
    assert compile_query(CATALOG, text, expect=expect).name in ("people", "add")
