"""Lance's own messages are read and written to the byte; the fixtures were written by pylance."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.schema import LanceSchema

from omnigraph.errors import InternalError, StorageCorrupt
from omnigraph.storage.lance_format.addresses import BranchReference, parse_reference
from omnigraph.storage.lance_format.fields import FieldProto, columns_of, new_column, schema_of
from omnigraph.storage.lance_format.manifests import (
    IndexEntry,
    WireError,
    base_addresses,
    base_paths,
    index_entries,
    manifest_message,
    parse_transaction,
    parse_version,
    read_fields,
    read_packed,
    replace_addresses,
    skip_fields,
    without_indexes,
    write_field,
)
from omnigraph.storage.objects.paths import version_file, version_number

FIXTURES = Path(__file__).parents[1] / "fixtures" / "lance"
TABLE = (FIXTURES / "table-2.manifest").read_bytes()
"""Version 2 of a table with a BTREE index on its second column."""
BRANCH = (FIXTURES / "branch-3.manifest").read_bytes()
"""A branch of it, with one version of its own."""
SEGMENT = "4b5ac158-5582-4525-bb1a-36274056fc98"
FILES = (("page_data.lance", 634), ("page_lookup.lance", 701))

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.int32())),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)
FIELDS = (
    "1202696420ffffffffffffffffff012a06737472696e673802",
    "120474616773180120ffffffffffffffffff012a046c69737430013801",
    "12046974656d180220012a05696e74333230013801",
    "120176180320ffffffffffffffffff012a1766697865645f73697a655f6c6973743a666c6f61743a3230013801",
)


# -- the wire format ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ("", []),
        ("0800", [(1, 0)]),
        ("089601", [(1, 150)]),
        ("20ffffffffffffffffff01", [(4, 2**64 - 1)]),
        ("120568656c6c6f", [(2, b"hello")]),
        ("1d01000000", [(3, bytes([1, 0, 0, 0]))]),
        ("09ffffffffffffffff", [(1, bytes([255] * 8))]),
        ("b806019206026869", [(103, 1), (98, b"hi")]),
    ],
)
def test_fields_are_read_with_their_bytes(raw, fields):
    read = list(read_fields(bytes.fromhex(raw)))
    assert [(field.number, field.value) for field in read] == fields
    assert b"".join(field.raw for field in read).hex() == raw


@pytest.mark.parametrize("raw", ["08", "0896", "120568656c", "1d0100", "0b", "80"])
def test_a_message_that_is_cut_off_is_refused(raw):
    with pytest.raises(WireError):
        list(read_fields(bytes.fromhex(raw)))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**63, 2**64 - 1, b"", b"x" * 200])
def test_a_written_field_is_read_again(value):
    (field,) = read_fields(write_field(77, value).raw)
    assert (field.number, field.value) == (77, value)


def test_packed_integers_are_read():
    assert read_packed(bytes.fromhex("0396010a")) == [3, 150, 10]
    with pytest.raises(WireError):
        read_packed(b"\x80")


def test_leading_fields_are_skipped_up_to_the_first_of_another_number():
    raw = write_field(1, b"x" * 300).raw + write_field(2, b"").raw
    assert skip_fields(raw + b"\x18\x07", 0, len(raw) + 2, (1, 2)) == len(raw)
    with pytest.raises(WireError):
        skip_fields(raw[:-3], 0, len(raw) - 3, (1, 2))


# -- columns --------------------------------------------------------------------------------------


def test_this_lance_stores_columns_as_the_golden_bytes():
    state = LanceSchema.from_pyarrow(SCHEMA).__reduce__()[1]
    assert [raw.hex() for raw in state[1:]] == list(FIELDS)


def test_columns_are_taken_apart_and_put_together_to_the_byte():
    schema = LanceSchema.from_pyarrow(SCHEMA)
    columns = columns_of(schema)
    assert [column.name for column in columns] == ["id", "tags", "v"]
    assert [[(f.id, f.parent) for f in c.fields] for c in columns] == [
        [(0, -1)],
        [(1, -1), (2, 1)],
        [(3, -1)],
    ]
    assert [field.raw().hex() for c in columns for field in c.fields] == list(FIELDS)
    assert schema_of(schema, columns).to_pyarrow() == SCHEMA


@pytest.mark.parametrize("field", list(SCHEMA), ids=SCHEMA.names)
def test_an_altered_column_has_the_bytes_that_lance_would_write(field):
    renamed = field.with_name("other").with_nullable(not field.nullable)
    wanted = new_column(renamed, 5)
    assert new_column(field, 5).altered("other", renamed.nullable) == wanted
    assert min(item.id for item in wanted.fields) == 5


def test_a_column_in_an_unknown_format_is_an_internal_error():
    with pytest.raises(InternalError):
        FieldProto.parse(b"\x0b")


# -- version files --------------------------------------------------------------------------------


def test_a_version_file_of_a_table():
    content = parse_version(TABLE, "table")
    transaction = "a51c431e-4ad7-4539-b412-cb5e0b5526f4"
    assert content.version == 2
    assert content.transaction_id == transaction
    assert content.files == [
        "_versions/18446744073709551613.manifest",
        f"_transactions/1-{transaction}.txn",
    ]
    assert parse_transaction(content.transaction) == transaction
    assert index_entries(TABLE, "table") == [IndexEntry("n_equality", SEGMENT, (1,), FILES, None)]
    assert base_addresses(TABLE, "table") == []
    assert replace_addresses(TABLE, "table", str.upper) == TABLE


def test_a_version_file_of_a_branch():
    assert parse_version(BRANCH, "branch").version == 3
    assert index_entries(BRANCH, "branch") == [IndexEntry("n_equality", SEGMENT, (1,), FILES, 0)]
    assert base_addresses(BRANCH, "branch") == ["/tmp/gold/nodes/40d7"]
    assert base_paths(BRANCH, "branch", "nodes/40d7") == {0: "nodes/40d7"}


def test_replacing_an_address_leaves_every_other_byte():
    longer = "/a/much/longer/address" * 10
    moved = replace_addresses(BRANCH, "branch", lambda _: longer)
    assert base_addresses(moved, "branch") == [longer]
    assert parse_version(moved, "branch") == parse_version(BRANCH, "branch")
    assert replace_addresses(moved, "branch", lambda _: "/tmp/gold/nodes/40d7") == BRANCH


def test_a_version_without_its_indexes_opens(tmp_path):
    path = str(tmp_path / "nodes" / "40d7")
    made = lance.write_dataset(pa.table({"id": ["a", "b"], "n": [1, 2]}), path)
    made.create_scalar_index("n", "BTREE", name="n_equality")
    raw = Path(path, version_file(2)).read_bytes()
    assert [entry.name for entry in index_entries(raw, path)] == ["n_equality"]
    content = without_indexes(manifest_message(raw, path), path)
    session = lance.Session()
    bare = lance.LanceDataset(path, version=2, serialized_manifest=content, session=session)
    assert bare.describe_indices() == []
    assert bare.count_rows() == 2


@pytest.mark.parametrize("length", [0, 1, 15, 16, 200, len(BRANCH) - 1])
def test_a_version_file_that_is_cut_off_is_named(length):
    for read in (parse_version, base_addresses, manifest_message):
        with pytest.raises(StorageCorrupt, match="'x' is not a Lance version file"):
            read(BRANCH[:length], "x")


def test_any_changed_byte_is_read_or_refused():
    """Nothing but ``StorageCorrupt`` comes out of a damaged file."""
    for at in range(len(BRANCH)):
        raw = BRANCH[:at] + bytes([BRANCH[at] ^ 0xFF]) + BRANCH[at + 1 :]
        for read in (parse_version, index_entries, base_addresses):
            try:
                read(raw, "x")
            except StorageCorrupt:
                continue


# -- names and references -------------------------------------------------------------------------


def test_the_name_of_a_version_file_counts_down():
    names = [version_file(n).removeprefix("_versions/") for n in (1, 9, 10, 2**40)]
    assert names == sorted(names, reverse=True)
    assert [version_number(name) for name in names] == [1, 9, 10, 2**40]
    for other in ("latest_version_hint.json", "d123.manifest", "7.manifest", "x"):
        assert version_number(other) is None


def test_the_reference_of_a_branch():
    text = (FIXTURES / "branch.json").read_text()
    reference = parse_reference(text, "x")
    assert (reference.parent, reference.parent_version) == (None, 2)
    assert reference == parse_reference(text, "y")
    nested = text.replace('"parentBranch": null', '"parentBranch": "a/b"')
    assert parse_reference(nested, "x") == BranchReference("a/b", 2, reference.life)
    for damaged in ("", "[]", "{}", text[:-5], text.replace("null", '"../x"')):
        with pytest.raises(StorageCorrupt):
            parse_reference(damaged, "x")
