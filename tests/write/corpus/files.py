"""Files and streams that cannot be read, each made by a function of the directory it may use.

A function gives what to load, the options, and what the error says.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GOOD = b'{"type": "Person", "data": {"name": "Zoe"}}\n'
Made = tuple[Any, dict[str, Any], str]


def _file(name: str, content: bytes, says: str, **options: Any) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        (folder / name).write_bytes(content)
        return folder / name, options, says

    return make


def _path(path: Any, says: str, **options: Any) -> Callable[[Path], Made]:
    return lambda folder: (path, options, says)


def _stream(stream: Callable[[], Any], says: str, **options: Any) -> Callable[[Path], Made]:
    return lambda folder: (stream(), options, says)


def _folder(names: list[str], says: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        top = folder / "export"
        top.mkdir()
        for name in names:
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_bytes(b"")
        return top, {}, says

    return make


def _locked(folder: Path) -> Made:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop", {}, "cannot read"


def _below(folder: Path) -> Made:
    (folder / "a").write_bytes(b"")
    return folder / "a" / "b.ndjson", {}, "not a directory"


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


def _parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def _flipped(data: bytes, at: float) -> bytes:
    where = int(len(data) * at)
    return data[:where] + bytes([data[where] ^ 0xFF]) + data[where + 1 :]


class _Failing(io.RawIOBase):
    """A stream that breaks after its first bytes."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._given = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._given:
            raise self._error
        self._given = True
        buffer[: len(GOOD)] = GOOD
        return len(GOOD)


class _Odd:
    """Something with a ``read`` that gives what no file gives."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def read(self, size: int) -> Any:
        return self._given


def _closed() -> io.BytesIO:
    stream = io.BytesIO(GOOD)
    stream.close()
    return stream


MANY = GOOD.replace(b"Zoe", b"Zoe of a long line of Zoes") * 400
GZ, ZST = gzip.compress(MANY), _zstd(MANY)
PARQUET = _parquet(name=["A", "B"], age=[1, 2])

FILES: dict[str, Callable[[Path], Made]] = {
    # -- paths ----------------------------------------------------------------------------
    "no file": _path("/no/such/file.ndjson", "no such file"),
    "no file of CSV": _path("/no/such/Person.csv", "no such file"),
    "no file of Parquet": _path("/no/such/Person.parquet", "no such file"),
    "no file that is compressed": _path("/no/such/file.ndjson.gz", "no such file"),
    "an empty path": _path("", "no such file"),
    "a path with a zero": _path("a\0b.ndjson", "cannot read"),
    "a Parquet path with a zero": _path("Person\0.parquet", "cannot read"),
    "a path without end": _path("x" * 10_000, "name too long"),
    "a function": _path(len, "cannot load from"),
    "a link to itself": _locked,
    "a file as a directory": _below,
    "records as a text": _path(GOOD.decode(), "no such file"),
    "an empty directory": _folder([], "without files to load"),
    "a directory of other things": _folder(["other/x.parquet"], "no type 'other' in the schema"),
    "a directory of no type": _folder(["nodes/Robot.parquet"], "no type 'node:Robot'"),
    "a directory with edges as nodes": _folder(["nodes/Knows.parquet"], "no type 'node:Knows'"),
    "a directory of empty files": _folder(["nodes/Person.parquet"], "as Parquet"),
    # -- things that are no data ----------------------------------------------------------
    "nothing": _path(None, "cannot load from NoneType"),
    "a number": _path(7, "cannot load from int"),
    "bytes": _path(GOOD, "cannot load from bytes"),
    "a list of numbers": _path([1, 2], "cannot load from int"),
    "a list of None": _path([None], "cannot load from NoneType"),
    "a record as the data": _path({"type": "Person", "data": {}}, "no type 'type'"),
    "rows as a list": _path({"Person": [{"name": "A"}]}, "the rows of 'Person' are list"),
    "rows as a text": _path({"Person": "people.csv"}, "the rows of 'Person' are str"),
    "records and then a path": _path(
        [{"type": "Person", "data": {"name": "A"}}, "people.ndjson"], "a record is a JSON object"
    ),
    # -- encodings ------------------------------------------------------------------------
    "Latin-1": _file("a.ndjson", '{"type": "José"}\n'.encode("latin-1"), ":1: invalid JSON"),
    "Latin-1 on the second line": _file(
        "a.ndjson", GOOD + '{"type": "José"}\n'.encode("latin-1"), ":2: invalid JSON"
    ),
    "UTF-16": _file("a.ndjson", GOOD.decode().encode("utf-16"), "not UTF-8"),
    "UTF-16 without a mark": _file("a.ndjson", GOOD.decode().encode("utf-16-le"), ":1: invalid"),
    "UTF-32": _file("a.ndjson", GOOD.decode().encode("utf-32"), "not UTF-8"),
    "a stored surrogate": _file("a.ndjson", b'{"type": "\xed\xa0\x80"}\n', "not UTF-8"),
    "a character cut short": _file("a.ndjson", b'{"type": "\xf0\x9f\x98', "not UTF-8"),
    "an overlong slash": _file("a.ndjson", b'{"type": "\xc0\xaf"}', "not UTF-8"),
    "only zeros": _file("a.ndjson", bytes(1000), ":1: invalid JSON"),
    "a picture": _file("a.ndjson", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not UTF-8"),
    "two marks": _file("a.ndjson", b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD, ":1: invalid JSON"),
    # -- compression ----------------------------------------------------------------------
    "plain text as gz": _file("a.ndjson.gz", GOOD, "not gzip data"),
    "plain text as zst": _file("a.ndjson.zst", GOOD, "not zstd data"),
    "zst as gz": _file("a.ndjson.gz", ZST, "not gzip data"),
    "gz as zst": _file("a.ndjson.zst", GZ, "not zstd data"),
    "gz as plain text": _file("a.ndjson", GZ, "not UTF-8"),
    "gz that is cut": _file("a.ndjson.gz", GZ[: len(GZ) // 2], "or damaged"),
    "gz without its end": _file("a.ndjson.gz", GZ[:-4], "or damaged"),
    "gz of one byte": _file("a.ndjson.gz", GZ[:1], "or damaged"),
    "gz with a wrong sum": _file("a.ndjson.gz", _flipped(GZ, 0.97), "or damaged"),
    "gz with a wrong byte": _file("a.ndjson.gz", _flipped(GZ, 0.5), "or damaged"),
    "gz and then text": _file("a.ndjson.gz", GZ + b"more", "or damaged"),
    "zst that is cut": _file("a.ndjson.zst", ZST[: len(ZST) // 2], "or damaged"),
    "zst without its end": _file("a.ndjson.zst", ZST[:-1], "or damaged"),
    "zst with a wrong byte": _file("a.ndjson.zst", _flipped(ZST, 0.5), ""),
    "zst and then text": _file("a.ndjson.zst", ZST + b"more", "or damaged"),
    "CSV in broken gz": _file("Person.csv.gz", gzip.compress(b"name\nA\n")[:-2], "or damaged"),
    "Parquet in gz": _file("Person.parquet.gz", gzip.compress(PARQUET), "as Parquet"),
    "a mistake inside gz": _file("a.ndjson.gz", gzip.compress(GOOD + b"oops"), ":2: invalid JSON"),
    # -- Parquet --------------------------------------------------------------------------
    "an empty Parquet file": _file("Person.parquet", b"", "as Parquet"),
    "text as Parquet": _file("Person.parquet", GOOD, "as Parquet"),
    "Parquet that is cut": _file("Person.parquet", PARQUET[: len(PARQUET) // 2], "as Parquet"),
    "Parquet without its end": _file("Person.parquet", PARQUET[:-1], "as Parquet"),
    "Parquet without its start": _file("Person.parquet", PARQUET[8:], "as Parquet"),
    "Parquet with a wrong footer": _file("Person.parquet", _flipped(PARQUET, 0.6), "as Parquet"),
    "Parquet of one mark": _file("Person.parquet", b"PAR1", "as Parquet"),
    "Parquet of two marks": _file("Person.parquet", b"PAR1\0\0\0\0PAR1", "as Parquet"),
    "Parquet as NDJSON": _file("a.ndjson", PARQUET, ""),
    "Parquet of no type": _file("Robot.parquet", PARQUET, "no type 'Robot'"),
    "Parquet with text for numbers": _file(
        "Person.parquet", _parquet(name=["A"], age=["old"]), ":1: "
    ),
    "Parquet with one number too great": _file(
        "Person.parquet", _parquet(name=["A", "B", "C"], age=[1, 2**40, 3]), ":2: "
    ),
    "Parquet without the key": _file("Person.parquet", _parquet(age=[1]), "'name' is missing"),
    "Parquet with a null key": _file("Person.parquet", _parquet(name=["A", None]), ":2: "),
    "Parquet of edges without ends": _file("Knows.parquet", _parquet(weight=[1.5]), "'src'"),
    # -- streams --------------------------------------------------------------------------
    "a closed stream": _stream(_closed, "cannot read"),
    "a stream that fails": _stream(lambda: _Failing(OSError(5, "I/O error")), "cannot read"),
    "a stream that times out": _stream(lambda: _Failing(TimeoutError()), "cannot read"),
    "a stream to write": _stream(lambda: io.BufferedWriter(io.BytesIO()), "cannot read"),
    "a stream of numbers": _stream(lambda: _Odd(7), "gives int instead of bytes"),
    "a stream of nothing": _stream(lambda: _Odd(None), "gives NoneType instead of bytes"),
    "a text stream of another code": _stream(
        lambda: io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"), "not UTF-8"
    ),
    "a text stream with escapes": _stream(
        lambda: io.TextIOWrapper(io.BytesIO(b"\xff"), "utf-8", "surrogateescape"), "not UTF-8"
    ),
    "a stream of Parquet": _stream(lambda: io.BytesIO(PARQUET), "", format="parquet"),
    "a stream of CSV": _stream(
        lambda: io.BytesIO(b"name\nA"), "the type of a CSV stream", format="csv"
    ),
    "a mistake in a stream": _stream(lambda: io.BytesIO(GOOD + b"oops"), "<stream>:2: invalid"),
    # -- options --------------------------------------------------------------------------
    "a format that is none": _path([], "invalid format 'xml'", format="xml"),
    "a format that is a number": _path([], "format must be text", format=7),
    "a mode that is none": _path([], "invalid mode 'upsert'", mode="upsert"),
    "a mode that is null": _path([], "mode must be 'merge'", mode=None),
    "an engine that is none": _path([], "invalid engine 'spark2'", engine="spark2"),
    "a branch that is not there": _path([], "branch 'nope'", branch="nope"),
    "a branch without a name": _path([], "cannot be empty", branch="  "),
    "a branch from one that is not there": _path([], "branch 'x'", branch="new", from_branch="x"),
    "a branch that may not be": _path([], "cannot be the name", branch="a b", from_branch="main"),
    "a branch below main": _path([], "below 'main'", branch="main/x", from_branch="main"),
    "fewer rejects than none": _path([], "max_rejects", max_rejects=-1),
    "rejects to nowhere": _path([], "cannot write", rejects="/no/such/dir/rejects.ndjson"),
    "rejects to a directory": _path([], "cannot write", rejects="/"),
    "rejects to a zero": _path([], "NUL", rejects="a\0b"),
    "a commit that is not the newest": _path(
        [{"type": "Company", "data": {"name": "C"}}],
        "no longer at commit",
        if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV",
    ),
    "a commit that is not the newest, dry": _path(
        [], "no longer at commit", if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV", dry_run=True
    ),
    "CSV after no type": _file("people.csv", b"name\nA\n", "no type 'people'"),
    "CSV said to be of no type": _file(
        "people.csv", b"name\nA\n", "no type 'Robot'", types={"people.csv": "Robot"}
    ),
    "a mapping of a file that is not loaded": _file(
        "Person.csv", b"name\nA\n", "is not loaded", types={"/other/people.csv": "Person"}
    ),
    "a mapping of NDJSON": _file("a.ndjson", GOOD, "is not loaded", types={"a.ndjson": "Person"}),
    "a mapping that is a list": _path([], "types must be a dict", types=["Person"]),
    "a mapping to a number": _path([], "types has", types={"a.csv": 7}),
    "a mapping from a number": _path([], "a key of types must be a path", types={7: "Person"}),
    "an unknown property, strictly": _file(
        "a.ndjson",
        b'{"type": "Person", "data": {"name": "A", "nick": "a"}}',
        ":1: Person has no property 'nick'",
        strict_properties=True,
    ),
    "an unknown column, strictly": _file(
        "Person.csv", b"name,nick\nA,a\n", ":2: Person has no property", strict_properties=True
    ),
    "an unknown column of Parquet, strictly": _file(
        "Person.parquet",
        _parquet(name=["A"], nick=["a"]),
        "Person has no property 'nick'",
        strict_properties=True,
    ),
}
