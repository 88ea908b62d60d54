"""CSV: a header, one file for each type, values by the types of their properties."""

from __future__ import annotations

import datetime as dt
import functools
import gzip
import io
from itertools import chain, repeat

import pyarrow as pa
import pytest

from omnigraph.errors import InputError, LoadError
from omnigraph.write.load import limits
from tests.write.load.world import names, rows


def load(graph, tmp_path, name, text, **options):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return graph.load(path, **options)


def test_the_name_of_a_file_is_its_type(empty, tmp_path):
    load(empty, tmp_path, "Person.csv", "name,age\nAda,36\nBob,\n")
    assert rows(empty, "Person", "name", "age") == [("Ada", 36), ("Bob", None)]


def test_a_mapping_says_the_type_of_a_file(empty, tmp_path):
    """By whatever spelling of its path, and ahead of its name."""
    path = tmp_path / "Company.csv"
    path.write_text("name\nAda\n")
    empty.load(path, types={str(tmp_path / "." / "Company.csv"): "node:Person"})
    empty.load(path, types={path: "Company"})
    assert names(empty) == ["Ada"]
    assert empty.snapshot().count("Company") == 1


def test_edges_name_their_ends(empty, tmp_path):
    """By ``from`` and ``to``, or by the columns that are stored."""
    load(empty, tmp_path, "Person.csv", "name\nAda\nBob\n")
    load(empty, tmp_path, "Knows.csv", "from,to,since\nAda,Bob,2020-02-29\n")
    load(empty, tmp_path, "Knows.csv", "weight,dst,src\n0.5,Ada,Bob\n")
    assert rows(empty, "Knows", "src", "dst", "since", "weight") == [
        ("Ada", "Bob", dt.date(2020, 2, 29), None),
        ("Bob", "Ada", None, 0.5),
    ]


def test_values_are_read_by_the_types_of_their_properties(empty, tmp_path):
    header = "slug,i32,i64,u32,u64,f32,f64,ok,text,day,kind,words,numbers,vector,body\n"
    row = (
        f'a,-5,{-(2**63)},4294967295,{2**64 - 1},0.5,1e-3,TRUE,"x,""y""\nz",1969-12-31,note,'
        '"[""a"", """"]","[1, 2]","[1, 0, 2.5]",base64:aGk=\n'
    )
    load(empty, tmp_path, "Thing.csv", header + row)
    columns = header.strip().split(",")[:-1]
    assert rows(empty, "Thing", *columns) == [
        (
            "a",
            -5,
            -(2**63),
            2**32 - 1,
            2**64 - 1,
            0.5,
            0.001,
            True,
            'x,"y"\nz',
            dt.date(1969, 12, 31),
            "note",
            ["a", ""],
            [1, 2],
            [1.0, 0.0, 2.5],
        )
    ]
    assert empty.snapshot().read_blob("Thing", "a", "body") == b"hi"


def test_integers_may_have_a_point_or_an_exponent(empty, tmp_path):
    load(empty, tmp_path, "Person.csv", "name,age\nA,5.0\nB,1e1\nC,-0.0\n")
    assert rows(empty, "Person", "age") == [(0,), (10,), (5,)]


def test_an_empty_field_is_null_and_an_empty_text_where_one_is_required(empty, tmp_path):
    load(empty, tmp_path, "Note.csv", 'text,stars\n"",\nx,1\n')
    load(empty, tmp_path, "Thing.csv", "slug,text,words\na,,\n")
    assert rows(empty, "Note", "text", "stars") == [("", None), ("x", 1)]
    assert rows(empty, "Thing", "text", "words") == [(None, None)]


@pytest.mark.parametrize(
    "text",
    [
        "name\r\nAda\r\nBob\r\n",
        "\ufeffname\nAda\nBob\n",
        'name\n"Ada"\n"Bob"',
        "\n\nname\n\nAda\n\nBob\n\n",
        " name \nAda\nBob\n",
    ],
    ids=["Windows", "mark", "quotes", "empty lines", "spaces around a name"],
)
def test_forms_of_a_file(empty, tmp_path, text):
    load(empty, tmp_path, "Person.csv", text)
    assert names(empty) == ["Ada", "Bob"]


def test_a_long_field(empty, tmp_path):
    """Longer than Python's reader takes by itself."""
    load(empty, tmp_path, "Note.csv", "text\n" + "x" * 300_000 + "\n")
    assert len(rows(empty, "Note", "text")[0][0]) == 300_000


def test_a_compressed_file_and_a_format_that_is_said(empty, tmp_path):
    load(empty, tmp_path, "Person.csv.gz", gzip.compress(b"name\nAda\n"))
    load(empty, tmp_path, "Person.txt", "name\nBob\n", format="csv")
    assert names(empty) == ["Ada", "Bob"]


def test_a_stream_whose_type_is_said(empty):
    """``types`` calls it ``-``."""
    empty.load(io.BytesIO(b"name\nAda\n"), format="csv", types={"-": "Person"})
    assert names(empty) == ["Ada"]
    with pytest.raises(InputError, match="the type of a CSV stream is unknown"):
        empty.load(io.BytesIO(b"name\nAda\n"), format="csv")


def test_unknown_columns_are_ignored_and_counted(empty, tmp_path):
    receipt = load(empty, tmp_path, "Person.csv", "name,nick\nAda,a\nBob,\n")
    assert receipt.ignored == {"Person.nick": 2}


def test_rows_that_are_wrong_can_be_set_aside(empty, tmp_path):
    text = "name,age\nAda,1\nBob\nCyd,x\nDan,4\n"
    receipt = load(empty, tmp_path, "Person.csv", text, max_rejects=2)
    assert (names(empty), receipt.rejected) == (["Ada", "Dan"], 2)


# -- records of any length ------------------------------------------------------------------------

SMALL = 1 << 16


class Endless(io.RawIOBase):
    """Bytes that are made when they are asked for."""

    def __init__(self, head: bytes, piece: bytes, size: int) -> None:
        self._pieces = chain([head], repeat(piece, size // len(piece)))
        self.given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = next(self._pieces, b"")
        self.given += len(data)
        return data


LONG = {
    "a line": (b"name,age\nAda,1\n", b"x" * 4096, 3),
    "an open quote": (b'name,age\nAda,1\n"Bob', b"x,1\n" * 1024, 3),
    "the header": (b"name,", b"y" * 4096, 1),
    "fields": (b"name,age\nAda,1\n", b"," * 4096, 3),
    "quoted fields": (b"name,age\nAda,1\n", b'"a","b",' * 512, 3),
}


@pytest.mark.parametrize("case", LONG)
def test_a_record_that_is_too_long_ends_the_load_early(empty, monkeypatch, case):
    monkeypatch.setattr(limits, "LONGEST_RECORD", SMALL)
    head, piece, line = LONG[case]
    stream = Endless(head, piece, 1 << 26)
    with pytest.raises(LoadError) as caught:
        empty.load(stream, format="csv", types={"-": "Person"}, max_rejects=100)
    assert caught.value.message.endswith(f":{line}: the record is too long")
    assert caught.value.details["line"] == line
    assert "not closed" in caught.value.hint
    # What streams are read in comes on top.
    assert stream.given < SMALL + (1 << 20)
    assert names(empty) == []


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_record_that_is_too_long_ends_the_load(empty, monkeypatch, tmp_path, ending):
    monkeypatch.setattr(limits, "LONGEST_RECORD", SMALL)
    path = tmp_path / f"Person.csv{ending}"
    with pa.CompressedOutputStream(str(path), {".gz": "gzip", ".zst": "zstd"}[ending]) as file:
        file.write(b"name,age\nAda,1\n" + b"x" * (4 * SMALL))
    with pytest.raises(LoadError, match=r":3: the record is too long"):
        empty.load(path)


def test_a_record_of_just_the_length_that_is_allowed_loads(empty, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_RECORD", SMALL)
    row = b"x" * (SMALL - 3) + b",1\n"
    empty.load(io.BytesIO(b"name,age\n" + row), format="csv", types={"-": "Person"})
    assert {len(name) for name in names(empty)} == {SMALL - 3}
    with pytest.raises(LoadError, match="too long"):
        empty.load(io.BytesIO(b"name,age\nx" + row), format="csv", types={"-": "Person"})


def test_a_header_of_many_columns_is_read_at_once(empty):
    """Each name that is there twice would be looked for among all the others."""
    count = 60_000
    header = b"name," + b",".join(b"c%d" % n for n in range(count))
    row = b"Ada" + b",1" * count
    receipt = empty.load(io.BytesIO(header + b"\n" + row), format="csv", types={"-": "Person"})
    assert sum(receipt.ignored.values()) == count
    assert len(receipt.ignored) == limits.MOST_IGNORED + 1
    assert receipt.warnings[-1].startswith("other properties are not in the schema: ignored in ")


def test_a_row_of_too_many_fields_ends_the_load_before_it_is_read(empty, monkeypatch):
    monkeypatch.setattr(limits, "MOST_FIELDS", 100)
    load = functools.partial(empty.load, format="csv", types={"-": "Person"})
    for row in (b"," * 100, b'"a' + b"\n" + b'",' * 1 + b"," * 100, b'"' + b'","' * 100 + b'"'):
        with pytest.raises(LoadError, match=r":2: the record has more than 100 fields"):
            load(io.BytesIO(b"name,age\n" + row + b"\n"))
    wide = io.BytesIO(b'name,age\n"' + b"," * 500 + b'",1\n')
    assert load(wide).affected_nodes == 1
    with pytest.raises(LoadError, match=r":1: the record has more than 100 fields"):
        load(io.BytesIO(b"a," * 101 + b"\n"))
