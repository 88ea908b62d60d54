"""Input that is wrong, from the tables in ``tests/write/corpus``.

One graph takes all of it. Each attempt ends with an error of ours that says where and what, shows
no word of a library, and leaves every file of the graph as it was.
"""

from __future__ import annotations

import json
import re

import pytest

from omnigraph import Graph
from omnigraph.errors import InternalError, OmniGraphError, ParameterError, StorageError
from tests.write.corpus import csv_texts, files, params, tables, texts, values
from tests.write.load.world import SCHEMA, edge, listing, node, people

pytestmark = pytest.mark.rotates(6)

FOREIGN = re.compile(
    r"pyarrow|ArrowInvalid|lance|numpy|Traceback|Expecting|delimiter|codec|Errno|errno|decoder"
    r"|site-packages|\.py\b|object at 0x|Exceeds the limit|set_int_max|zlib|ZSTD_|magic bytes"
    r"|newline inside|NULL|std::|thrift|footer|surrogates not allowed|embedded null",
)
FIRST = [node("Person", name="First", email="first@x"), node("Person", name="Second")]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    location = tmp_path_factory.mktemp("malformed")
    with Graph.init(location / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(
            [
                *people("Ada", "Bob"),
                node("Person", name="Cyd", email="cyd@x", born="1990-01-01"),
                node("Company", name="Acme"),
                node("Company", name="Brim"),
                edge("WorksAt", "Ada", "Acme"),
            ]
        )
        yield graph


def refused(graph, call):
    """The error of a call that changes nothing at all."""
    before = graph.snapshot().version, graph.branches.list(), listing(graph)
    with pytest.raises(OmniGraphError) as caught:
        call()
    error = caught.value
    assert not isinstance(error, InternalError | StorageError)
    for text in (error.message, error.hint or ""):
        assert FOREIGN.search(text) is None, text
        text.encode("utf-8")
    json.dumps(error.to_json())
    assert all(isinstance(link, OmniGraphError) for link in chain(error))
    assert (graph.snapshot().version, graph.branches.list(), listing(graph)) == before
    return error


def chain(error):
    """The error and those that a traceback would show before it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def stands_at(error, file, line, field=None):
    details = error.details
    assert (details["file"], details["line"], details["field"]) == (str(file), line, field)
    assert error.message.startswith(f"{file}:{line}: ")


def table(cases):
    return pytest.mark.parametrize("name", list(cases))


# -- NDJSON and records -----------------------------------------------------------------------

VALUES = [(name, text) for name, wrong in values.WRONG.items() for text in wrong]


def _short(case):
    return str(case)[:40].encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize(("name", "text"), VALUES, ids=_short)
def test_a_value_that_its_property_does_not_take(graph, tmp_path, name, text):
    """The error names file, line, property and value."""
    path = tmp_path / "a.ndjson"
    slug = "" if name == "slug" else '"slug": "a", '
    bad = f'{{"type": "Thing", "data": {{{slug}"{name}": {text}}}}}'
    path.write_text(f'{{"type": "Thing", "data": {{"slug": "fine"}}}}\n{bad}\n')
    error = refused(graph, lambda: graph.load(path))
    stands_at(error, path, 2, name)
    assert error.details["value"] is not None
    assert f"Thing.{name}" in error.message
    again = refused(graph, lambda: graph.load([json.loads(bad)]))
    stands_at(again, "<records>", 1, name)


ROUNDED = [(name, text) for name, wrong in values.ROUNDED.items() for text in wrong]


@pytest.mark.parametrize("line_end", ["\n", " ", "\n  "])
@pytest.mark.parametrize(("name", "text"), ROUNDED, ids=_short)
def test_a_number_that_a_float_takes_for_an_integer(graph, tmp_path, name, text, line_end):
    """The text counts, also of a record that goes over several lines."""
    path = tmp_path / "a.ndjson"
    path.write_text(f'{{"type": "Thing",{line_end}"data": {{"slug": "a", "{name}": {text}}}}}\n')
    error = refused(graph, lambda: graph.load(path))
    stands_at(error, path, 1, name)
    assert "is not an" in error.message


@table(texts.BROKEN)
def test_text_that_is_no_json(graph, tmp_path, name):
    text, line, says = texts.BROKEN[name]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(r) + "\n" for r in FIRST) + text, encoding="utf-8")
    error = refused(graph, lambda: graph.load(path))
    stands_at(error, path, line)
    assert says in error.message
    assert "at record 3" in error.message or "at record 4" in error.message


@table(texts.NOT_RECORDS)
def test_json_that_is_no_record(graph, tmp_path, name):
    text, field, says = texts.NOT_RECORDS[name]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(r) + "\n" for r in FIRST) + text + "\n")
    error = refused(graph, lambda: graph.load(path))
    stands_at(error, path, 3, field)
    assert says in error.message


@table(texts.NOT_RECORDS)
def test_the_same_in_a_dry_run(graph, tmp_path, name):
    text, field, says = texts.NOT_RECORDS[name]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(r) + "\n" for r in FIRST) + text + "\n")
    error = refused(graph, lambda: graph.load(path, dry_run=True))
    stands_at(error, path, 3, field)
    assert says in error.message


# -- other sources ----------------------------------------------------------------------------


@table(csv_texts.CSV)
def test_csv_that_is_wrong(graph, tmp_path, name):
    kind, content, line, field, says = csv_texts.CSV[name]
    path = tmp_path / f"{kind}.csv"
    path.write_bytes(content)
    error = refused(graph, lambda: graph.load(path))
    stands_at(error, path, line, field)
    assert says in error.message


@table(files.FILES)
def test_a_source_that_cannot_be_read(graph, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    data, options, says = files.FILES[name](tmp_path)
    error = refused(graph, lambda: graph.load(data, **options))
    assert says in error.message


@table(tables.TABLES)
def test_a_table_that_does_not_fit(graph, name):
    data, row, field, says = tables.TABLES[name]
    error = refused(graph, lambda: graph.load(data))
    stands_at(error, f"<{next(iter(data))}>", row, field)
    assert says in error.message


@table(tables.NOT_TABLES)
def test_what_is_no_table(graph, name):
    data, says = tables.NOT_TABLES[name]
    error = refused(graph, lambda: graph.load(data))
    assert says in error.message


# -- parameters -------------------------------------------------------------------------------

PARAMS = [(kind, value) for kind, wrong in params.PARAMS.items() for value in wrong]


@pytest.mark.parametrize(("kind", "value"), PARAMS, ids=range(len(PARAMS)))
def test_a_parameter_that_its_type_does_not_take(graph, kind, value):
    query = f"query q($x: {kind}) {{ insert Thing {{ slug: 'a', {params.BY_TYPE[kind]}: $x }} }}"
    query = query.replace("'", '"')
    error = refused(graph, lambda: graph.mutate(query, None, {"x": value}))
    assert isinstance(error, ParameterError)
    assert error.details["parameter"].partition("[")[0] == "x"


@pytest.mark.parametrize("value", params.BLOBS, ids=range(len(params.BLOBS)))
def test_a_parameter_that_is_no_blob(graph, value):
    query = 'query q($x: Blob) { insert Thing { slug: "a", body: $x } }'
    refused(graph, lambda: graph.mutate(query, None, {"x": value}))


@table(params.SHAPES)
def test_parameters_of_the_wrong_shape(graph, name):
    query = "query q($slug: String) { insert Thing { slug: $slug } }"
    error = refused(graph, lambda: graph.mutate(query, None, params.SHAPES[name]))
    assert isinstance(error, ParameterError)


# -- all of it ---------------------------------------------------------------------------------


def test_the_corpus_is_large():
    """It has at least 500 inputs."""
    cases = [VALUES, texts.BROKEN, texts.NOT_RECORDS, csv_texts.CSV, files.FILES, tables.TABLES]
    cases += [tables.NOT_TABLES, PARAMS, params.BLOBS, params.SHAPES]
    assert sum(map(len, cases)) >= 500


def test_after_all_of_it_the_graph_takes_good_data(graph):
    graph.load(people("Dan"))
    assert graph.snapshot().count("Person") == 4
