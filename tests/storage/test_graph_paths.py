"""Only paths of known forms are used, and no link below a root is followed."""

from __future__ import annotations

import os

import pytest

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.first_read import FirstReads, VersionGuard
from omnigraph.storage.lance_format.manifests import IndexEntry
from omnigraph.storage.leases.local import LocalLeases, lease_path
from omnigraph.storage.objects.copying import copy_file, write_file
from omnigraph.storage.objects.paths import (
    branch_of_reference,
    escaped,
    is_branch,
    is_copied_file,
    is_copy,
    is_location,
    is_removable_file,
    is_table_file,
    parse_root,
    refuse_unsafe,
)
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.types import TableRef
from tests.maintain.copied_graphs import filled
from tests.maintain.outside import HOSTILE_PATHS, Outside

TABLE = "40d76f1f51639ec0"
LEADS_OUT = tuple(
    form for form in HOSTILE_PATHS if form and (".." in form.split("/") or form.startswith("{o"))
)


@pytest.fixture
def outside(tmp_path):
    actual = Outside(tmp_path)
    yield actual
    actual.close()


@pytest.fixture
def objects(tmp_path):
    return ObjectStore(parse_root(str(tmp_path / "g.omni")))


@pytest.mark.parametrize("form", HOSTILE_PATHS)
def test_a_path_that_no_graph_has_is_of_no_known_form(form, tmp_path):
    path = form.replace("{t}", TABLE).replace("{outside}", str(tmp_path))
    assert not is_table_file(path)
    assert not is_copied_file(path)
    assert not is_removable_file(path, f"nodes/{TABLE}")
    assert not is_location(path) or path == f"nodes/{TABLE}"
    assert not is_copy(path) or path == f"nodes/{TABLE}"
    assert escaped(path).isascii()
    assert escaped(path).isprintable()
    assert len(escaped(path)) < 200


@pytest.mark.parametrize("value", [None, 1, [], {}, b"nodes/a/data/x"])
def test_what_is_no_text_is_no_path(value):
    forms = (is_branch, is_location, is_copy, is_table_file, is_copied_file)
    assert not any(form(value) for form in forms)
    assert escaped(value).isascii()


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/..",
        "../a",
        "/a",
        "a/",
        "a//b",
        "a b",
        "a~",
        "ä",
        "a\n",
        "a\\b",
        "%2e",
        "a:b",
    ],
)
def test_a_name_that_leads_elsewhere_is_no_branch(name):
    assert not is_branch(name)


@pytest.mark.parametrize(
    "name", ["..%2Fx.json", "a%2F..json", "a%2f.json", "%2Fx.json", "a", "é.json"]
)
def test_a_reference_whose_name_decodes_to_another_directory_is_refused(name):
    with pytest.raises(StorageCorrupt):
        branch_of_reference(name)


def test_every_file_of_a_graph_has_a_known_form(tmp_path):
    with filled(tmp_path / "g.omni") as graph:
        graph.indexes.ensure("dev")
        graph.maintenance.optimize()
        store = graph._handle.store
        for top in ("nodes", "edges", "__manifest", "_graph_commit_recoveries.lance"):
            for path in store.objects.sizes_below(top):
                assert is_table_file(path), path
        for pin in store.manifest("dev").current().pins.values():
            assert is_location(pin.location)
            assert is_copy(pin.ref.path)


@pytest.mark.parametrize("form", LEADS_OUT)
def test_no_address_is_made_of_a_path_that_leads_out(form, objects, outside):
    path = outside.path(form, TABLE)
    for call in (
        objects.read,
        objects.read_bytes,
        objects.head,
        objects.exists,
        objects.list,
        objects.delete,
        objects.delete_prefix,
        objects.remove_if_empty,
        lambda p: list(objects.pieces(p, 10)),
        lambda p: list(objects.files_below(p)),
        lambda p: objects.sizes_below(p),
        lambda p: objects.folders(p),
        lambda p: objects.write(p, "theirs"),
        lambda p: objects.write_bytes(p, b"theirs"),
        lambda p: objects.create(p, "theirs"),
        lambda p: objects.replace(p, "theirs", "x"),
        lambda p: objects.rename("here", p),
        lambda p: objects.rename(p, "here"),
        lambda p: objects.delete_all(["here", p]),
        lambda p: objects.signatures([p]),
        lambda p: write_file(objects, p, b"theirs"),
        lambda p: copy_file(objects, p, objects, "here"),
        lambda p: copy_file(objects, "here", objects, p),
    ):
        objects.write("here", "ours")
        with pytest.raises(StorageCorrupt):
            call(path)
        assert objects.read("here") == "ours"
        outside.must_be_untouched()


def test_what_could_lead_out_is_refused_as_the_last_line():
    for path in ("a/../b", "..", "/a", "a//b", "a/", "./a", "a\\b", "a\0", "a\nb", "x" * 5000):
        with pytest.raises(StorageCorrupt):
            refuse_unsafe(path)
    for path in ("", "a", "a/b.c", "_refs/branches/a%2Fb.json", "a/..b", "a/...", "a/b#1"):
        refuse_unsafe(path)


def test_an_index_whose_files_lie_elsewhere_is_damaged(objects, outside):
    guard = VersionGuard(FirstReads(objects, Checksums(objects)), TableRef("nodes/a"), 1)
    for form in LEADS_OUT:
        files = ((outside.path(form, TABLE), 4),)
        assert guard._is_damaged(IndexEntry("i", "0c9a", (1,), files, None))
    outside.must_be_untouched()


# -- links ----------------------------------------------------------------------------------------


def test_a_link_below_the_root_is_not_followed(objects, outside, tmp_path):
    objects.write("t/own", "ours")
    root = tmp_path / "g.omni"
    (root / "link").symlink_to(outside.folder)
    (root / "t/link").symlink_to(outside.folder / "canary")
    for path in ("link/canary", "t/link"):
        for call in (
            objects.read,
            objects.read_bytes,
            lambda p: list(objects.pieces(p, 10)),
            lambda p: copy_file(objects, p, objects, "here"),
        ):
            with pytest.raises(StorageCorrupt, match="symbolic link"):
                call(path)
    for call in (
        lambda: objects.write("link/canary", "theirs"),
        lambda: objects.write_bytes("link/canary", b"theirs"),
        lambda: objects.create("link/new", "theirs"),
        lambda: objects.delete("link/canary"),
        lambda: objects.delete_all(["t/own", "link/canary"]),
        lambda: objects.rename("t/own", "link/own"),
        lambda: objects.list("link"),
        lambda: objects.list("t"),
        lambda: objects.delete_prefix("link"),
        lambda: objects.delete_prefix("t"),
        lambda: objects.refuse_links("t"),
        lambda: list(objects.files_below("t")),
        lambda: objects.sizes_below(),
        lambda: objects.folders("link"),
        lambda: write_file(objects, "link/canary", b"theirs"),
    ):
        with pytest.raises(StorageCorrupt, match="symbolic link"):
            call()
    assert objects.read("t/own") == "ours"
    outside.must_be_untouched()


def test_a_link_at_the_end_of_a_path_is_replaced_or_removed_itself(objects, outside, tmp_path):
    root = tmp_path / "g.omni"
    for name in ("a", "b"):
        (root / name).symlink_to(outside.folder / "canary")
    objects.write("a", "ours")
    objects.delete("b")
    assert (root / "a").read_text() == "ours"
    assert not (root / "b").is_symlink()
    outside.must_be_untouched()


def test_a_special_file_is_refused_and_not_waited_for(objects, tmp_path):
    objects.write("t/own", "ours")
    os.mkfifo(tmp_path / "g.omni/t/pipe")
    with pytest.raises(StorageCorrupt, match="special file"):
        objects.sizes_below("t")


@pytest.mark.parametrize("name", ["__recovery", lease_path("x"), "queue", "dangling"])
def test_a_lease_is_not_taken_through_a_link(name, outside, tmp_path):
    root = tmp_path / "g.omni"
    (root / "__recovery").mkdir(parents=True)
    path = root / name
    target = outside.folder
    if name == "queue":
        path = root / lease_path("x").replace(".lease", ".queue")
    elif name == "dangling":
        path, target = root / lease_path("x"), outside.folder / "new"
    elif name == "__recovery":
        path.rmdir()
    path.symlink_to(target)
    leases = LocalLeases(parse_root(str(root)))
    with pytest.raises(StorageCorrupt), leases.acquire(["x"], timeout=1.0):
        raise AssertionError("it was taken")
    outside.must_be_untouched()


def test_a_directory_with_odd_names_can_be_removed(objects, tmp_path):
    """They lead nowhere: who removes all that is there need not know its form."""
    objects.write("t/own", "ours")
    for name in ("a\\b", "line\nbreak", "..."):
        (tmp_path / "g.omni/t" / name).write_text("x")
    assert objects.delete_prefix("t") == 4
    assert not (tmp_path / "g.omni/t").exists()


def test_a_root_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    objects = ObjectStore(parse_root(str(tmp_path / "link")))
    objects.write("t/own", "ours")
    assert objects.sizes_below() == {"t/own": 4}
    assert objects.delete_prefix("t") == 1
