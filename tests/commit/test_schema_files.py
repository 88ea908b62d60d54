"""The three schema files: written byte by byte as agreed, and refused when they disagree."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.commit.schema.files import FILES, IR, SOURCE, STATE, SchemaFiles, SchemaState
from omnigraph.errors import FormatRefused, SchemaChanging, SchemaDrift, StorageDenied
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore

OLD = "// people\r\nnode Person { name: String @key }\n"
NEW = "node Person { name: String @key  age: I32? }\n"

OLD_IR = """\
{
  "ir_version": 1,
  "interfaces": [],
  "nodes": [
    {
      "name": "Person",
      "type_id": 3227219152,
      "annotations": [],
      "implements": [],
      "properties": [
        {
          "name": "name",
          "prop_id": 1466009789,
          "prop_type": {
            "scalar": "String",
            "nullable": false,
            "list": false,
            "enum_values": null
          },
          "annotations": [
            {
              "name": "key",
              "value": null
            }
          ]
        }
      ],
      "constraints": [
        {
          "Key": [
            "name"
          ]
        }
      ]
    }
  ],
  "edges": []
}"""


STATE_TEXT = """\
{
  "format_version": 1,
  "schema_ir_hash": "HASH",
  "schema_identity_version": 1
}"""


def state_text(schema_hash):
    return STATE_TEXT.replace("HASH", schema_hash)


class Watched(ObjectStore):
    """A store that counts, and that lets something happen right before a file is read."""

    looks = 0
    reads: list[str]
    before: dict[str, Callable[[], None]]

    def __init__(self, root):
        super().__init__(root, Durability.OS)
        self.reads, self.before = [], {}

    def signatures(self, paths):
        self.looks += 1
        return super().signatures(paths)

    def read(self, path):
        self.reads.append(path)
        self.before.get(path, lambda: None)()
        return super().read(path)


@pytest.fixture
def root(tmp_path):
    return parse_root(str(tmp_path / "g.omni"))


@pytest.fixture
def store(root):
    return Watched(root)


@pytest.fixture
def files(store):
    return SchemaFiles(store)


def initialise(files, source=OLD):
    assert files.claim(source)
    files.write_contract(compile_schema(source))


def contents(root):
    return {name: Path(root.uri, name).read_bytes() for name in FILES}


def replace_all(store, source):
    """What an apply leaves in the end."""
    catalog = compile_schema(source)
    store.write(SOURCE, source)
    store.write(IR, catalog.ir.pretty())
    store.write(STATE, SchemaState(catalog.schema_hash).text())


# -- writing ----------------------------------------------------------------------------------


def test_the_files_are_the_agreed_bytes(files, root):
    initialise(files)
    assert contents(root) == {
        SOURCE: OLD.encode(),
        IR: OLD_IR.encode(),
        STATE: state_text(compile_schema(OLD).schema_hash).encode(),
    }


def test_annotations_are_kept_word_by_word(files, store):
    initialise(files, 'node A @description("Zürich → \\"x\\"") { name: String @key }')
    (node,) = json.loads(store.read(IR))["nodes"]
    assert node["annotations"] == [{"name": "description", "value": 'Zürich → "x"'}]
    assert "Zürich →" in store.read(IR)


def test_a_root_that_is_taken_stays_byte_for_byte_as_it_is(files, root):
    initialise(files)
    before = contents(root)
    assert files.present() == list(FILES)
    assert files.claim(NEW) is False
    assert contents(root) == before


def test_of_many_that_claim_a_root_one_gets_it_and_its_source_stays(files, store):
    sources = [f"node T{n} {{ name: String @key }}" for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(files.claim, sources))
    assert won.count(True) == 1
    assert store.read(SOURCE) == sources[won.index(True)]


def test_force_takes_a_root_with_orphans(files, store):
    store.write(SOURCE, "no schema at all")
    store.write(STATE, "{}")
    assert files.present() == [SOURCE, STATE]
    assert files.claim(NEW, force=True) is True
    files.write_contract(compile_schema(NEW))
    assert files.load().source == NEW


@pytest.mark.parametrize("written", range(4))
def test_removal_leaves_nothing_however_far_init_came(files, store, written):
    catalog = compile_schema(OLD)
    texts = {SOURCE: OLD, IR: catalog.ir.pretty(), STATE: state_text(catalog.schema_hash)}
    for name in FILES[:written]:
        store.write(name, texts[name])
    assert files.remove() == []
    assert files.present() == []


def test_removal_goes_on_after_a_failure_and_gives_up_the_claim_last(root):
    class Stubborn(Watched):
        def delete(self, path):
            self.reads.append(path)
            if path == IR:
                raise StorageDenied("no")
            super().delete(path)

    store = Stubborn(root)
    files = SchemaFiles(store)
    initialise(files)
    assert files.remove() == [IR]
    assert files.present() == [IR]
    assert store.reads == [STATE, IR, SOURCE]


# -- loading ----------------------------------------------------------------------------------


def test_a_contract_is_the_source_and_its_catalog(files):
    initialise(files)
    contract = files.load()
    assert (contract.source, contract.catalog) == (OLD, compile_schema(OLD))
    assert contract.schema_hash == compile_schema(OLD).schema_hash
    assert contract.missing == ()


def test_files_in_another_layout_mean_the_same(files, store):
    initialise(files)
    store.write(IR, json.dumps(json.loads(store.read(IR))) + "\n")
    store.write(STATE, json.dumps(json.loads(store.read(STATE))) + "\n")
    assert files.load().source == OLD


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ([SOURCE], [SOURCE]),
        ([IR], [IR]),
        ([STATE], [STATE]),
        ([SOURCE, IR], [STATE]),
        ([SOURCE, STATE], [IR]),
        ([IR, STATE], [SOURCE]),
    ],
)
def test_files_that_disagree_are_refused_and_the_odd_one_is_named(files, store, changed, named):
    initialise(files)
    catalog = compile_schema(NEW)
    texts = {SOURCE: NEW, IR: catalog.ir.pretty(), STATE: state_text(catalog.schema_hash)}
    for name in changed:
        store.write(name, texts[name])
    with pytest.raises(SchemaDrift, match=f"^'{named[0]}' does not match ") as caught:
        files.load()
    assert caught.value.details["files"] == named
    assert set(caught.value.details["hashes"]) == set(FILES)
    assert "schema apply" in (caught.value.hint or "")


def test_three_files_that_all_differ_are_all_named(files, store):
    initialise(files)
    store.write(SOURCE, NEW)
    store.write(STATE, state_text("sha256:00"))
    with pytest.raises(SchemaDrift, match="do not match each other") as caught:
        files.load()
    assert caught.value.details["files"] == list(FILES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (IR, ""),
        (IR, "{"),
        (IR, "[]"),
        (IR, "{}"),
        (IR, '{"ir_version": 1}'),
        (IR, '{"ir_version": 1, "interfaces": [], "nodes": [{"name": 3}], "edges": []}'),
        (IR, "[" * 100_000),
        (STATE, "nope"),
        (STATE, "null"),
        (STATE, '{"format_version": 1, "schema_identity_version": 1}'),
        (STATE, '{"format_version": 1, "schema_ir_hash": 7, "schema_identity_version": 1}'),
        (STATE, '{"format_version": "1", "schema_ir_hash": "a", "schema_identity_version": 1}'),
        (STATE, '{"format_version": true, "schema_ir_hash": "a", "schema_identity_version": 1}'),
        (STATE, '{"format_version": 1, "schema_ir_hash": "a"}'),
    ],
)
def test_a_damaged_file_is_drift_and_is_named(files, store, name, text):
    initialise(files)
    store.write(name, text)
    with pytest.raises(SchemaDrift, match=f"^'{name}' cannot be read$") as caught:
        files.load()
    assert caught.value.details == {"files": [name]}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_text_is_drift(files, root, name):
    initialise(files)
    Path(root.uri, name).write_bytes(b"\xff\xfe{}")
    with pytest.raises(SchemaDrift, match=f"^'{name}' cannot be read$"):
        files.load()


def test_a_source_that_does_not_compile_is_drift_with_its_findings(files, store):
    initialise(files)
    store.write(SOURCE, "node Person { name: Strin @key }")
    with pytest.raises(SchemaDrift, match=r"'_schema\.pg' is not a valid schema: .*1:21") as caught:
        files.load()
    assert caught.value.details["diagnostics"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_drift(files, store, name):
    initialise(files)
    store.delete(name)
    with pytest.raises(SchemaDrift, match=f"^missing: '{name}'$"):
        files.load()


@pytest.mark.parametrize(
    ("name", "key", "hint"),
    [
        (STATE, "format_version", "upgrade"),
        (STATE, "schema_identity_version", "upgrade"),
        (IR, "ir_version", "upgrade"),
        (STATE, "format_version", "export"),
        (IR, "ir_version", "export"),
    ],
)
def test_an_unknown_version_is_refused_with_what_to_do(files, store, name, key, hint):
    initialise(files)
    version = 2 if hint == "upgrade" else 0
    # A later format may look different in everything but its number.
    other = {key: version} if key != "schema_identity_version" else {"format_version": 1, key: 2}
    store.write(name, json.dumps(other))
    with pytest.raises(FormatRefused, match=f"{key} {version}") as caught:
        files.load()
    assert hint in (caught.value.hint or "")
    assert caught.value.details == {"file": name, "found": version, "known": 1}


def test_a_change_in_the_middle_of_reading_is_not_taken_for_drift(files, store):
    initialise(files)
    store.before[IR] = lambda: (store.before.clear(), replace_all(store, NEW))[0]
    assert files.load().source == NEW


def test_files_that_never_come_to_rest_are_said_to_be_changing(files, store):
    initialise(files)
    rounds = iter(range(1000))

    def change():
        store.write(STATE, state_text(f"sha256:{next(rounds)}"))

    store.before[IR] = change
    with pytest.raises(SchemaChanging, match="keep changing") as caught:
        files.load()
    assert caught.value.retryable
    assert next(rounds) < 20


# -- a handle that lives long -----------------------------------------------------------------


def test_an_unchanged_schema_costs_one_look_and_no_read(files, store):
    initialise(files)
    contract = files.load()
    store.looks, store.reads = 0, []
    assert files.check(contract) is contract
    assert (store.looks, store.reads) == (1, [])


def test_a_handle_takes_over_what_an_apply_left(files, store):
    initialise(files)
    contract = files.load()
    replace_all(store, NEW)
    actual = files.check(contract)
    assert actual.schema_hash != contract.schema_hash
    assert (actual.source, actual.catalog) == (NEW, compile_schema(NEW))
    assert files.check(actual) is actual


def test_a_new_comment_is_tolerated_and_keeps_the_catalog(files, store):
    initialise(files)
    contract = files.load()
    store.write(SOURCE, OLD + "// more\n")
    actual = files.check(contract)
    assert actual.schema_hash == contract.schema_hash
    assert actual.source == OLD + "// more\n"
    assert actual.catalog is contract.catalog
    assert files.check(actual) is actual


@pytest.mark.parametrize(
    ("changed", "named"),
    [([SOURCE], SOURCE), ([IR], IR), ([SOURCE, IR], STATE)],
    ids=["source", "ir", "source and ir"],
)
def test_a_handle_refuses_to_work_on_drift_until_it_is_undone(files, store, changed, named):
    initialise(files)
    contract = files.load()
    before = {name: store.read(name) for name in FILES}
    catalog = compile_schema(NEW)
    texts = {SOURCE: NEW, IR: catalog.ir.pretty()}
    for name in changed:
        store.write(name, texts[name])
    for _ in range(2):
        with pytest.raises(SchemaDrift, match=f"^'{named}' does not match"):
            files.check(contract)
    for name in changed:
        store.write(name, before[name])
    assert files.check(contract).catalog is contract.catalog


def test_a_handle_refuses_a_file_that_vanished(files, store):
    initialise(files)
    contract = files.load()
    store.delete(STATE)
    with pytest.raises(SchemaDrift, match=f"^missing: '{STATE}'$"):
        files.check(contract)


# -- graphs from before the files -------------------------------------------------------------


@pytest.mark.parametrize("absent", [[IR, STATE], [STATE], [IR]])
def test_an_old_graph_gets_the_files_it_never_had(files, store, root, absent):
    initialise(files)
    before = contents(root)
    for name in absent:
        store.delete(name)
    contract = files.bootstrap(only_main=True)
    assert (contract.source, contract.missing) == (OLD, ())
    assert contents(root) == before


@pytest.mark.parametrize("absent", [[IR, STATE], [STATE], [IR]])
def test_an_old_graph_with_branches_is_refused_and_left_alone(files, store, absent):
    initialise(files)
    for name in absent:
        store.delete(name)
    before = files.present()
    with pytest.raises(SchemaDrift, match="other branches than main") as caught:
        files.bootstrap(only_main=False)
    assert "export" in (caught.value.hint or "")
    assert "load" in (caught.value.hint or "")
    assert files.present() == before


@pytest.mark.parametrize("only_main", [True, False])
def test_a_graph_with_all_files_needs_no_bootstrap(files, store, only_main):
    initialise(files)
    writes = store.traffic.writes
    assert files.bootstrap(only_main).source == OLD
    assert store.traffic.writes == writes


@pytest.mark.parametrize("kept", [IR, STATE])
def test_bootstrap_does_not_paper_over_a_file_that_disagrees(files, store, kept):
    initialise(files)
    store.delete(STATE if kept == IR else IR)
    store.write(SOURCE, NEW)
    before = files.present()
    with pytest.raises(SchemaDrift, match="do not match each other"):
        files.bootstrap(only_main=True)
    assert files.present() == before


def test_without_a_source_there_is_nothing_to_bootstrap(files):
    with pytest.raises(SchemaDrift, match=r"^missing: '_schema\.pg'$"):
        files.bootstrap(only_main=True)


def test_a_reader_opens_an_old_graph_without_writing(files, store):
    assert files.claim(OLD)
    writes = store.traffic.writes
    contract = files.load(allow_missing=True)
    assert contract.missing == (IR, STATE)
    assert files.check(contract) is contract
    assert store.traffic.writes == writes
    with pytest.raises(SchemaDrift):
        files.load()


def test_a_reader_of_an_old_graph_goes_on_when_a_writer_completes_it(files, store):
    assert files.claim(OLD)
    contract = files.load(allow_missing=True)
    store.write(SOURCE, OLD + "// more\n")
    contract = files.check(contract)
    assert contract.missing == (IR, STATE)
    files.bootstrap(only_main=True)
    actual = files.check(contract)
    assert actual.missing == ()
    assert actual.catalog is contract.catalog
