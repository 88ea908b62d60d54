"""Lists of files on S3 that lead out of their prefix, and pruning a backup there."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph, backup_points, clone, prune_backup, restore, verify_graph
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import TableRow, VersionRow
from omnigraph.commit.store import Timeouts
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import Conflict, StorageCorrupt
from omnigraph.maintain.backup.index import _sum
from omnigraph.maintain.backup.prune import _MARK, lock_backup
from omnigraph.maintain.verify import ProblemCode
from omnigraph.storage.objects.copying import copy_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.removed_versions import PATH, CopyRemovals, RemovedVersions
from tests.maintain.outside import HOSTILE_PATHS
from tests.rotation import sample
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node P { name: String @key }"


class Site:
    """A graph and a backup in one prefix, a canary beside them, and what is asked of the server."""

    def __init__(self, s3_root, proxy) -> None:
        self._proxy = proxy
        self.graph, self.backup, self.new = (
            s3_root(name, proxy.endpoint) for name in ("g.omni", "b", "r.omni")
        )
        self.options = {"storage_options": dict(self.graph.options)}
        self.canary = ObjectStore(s3_root("outside"))
        self.canary.write("canary", "mine")
        self.canary.write("data/canary", "mine")

    def must_be_untouched(self) -> None:
        requested = [request for request in self._proxy.log if "outside" in str(request)]
        assert requested == []
        assert self.canary.sizes_below() == {"canary": 4, "data/canary": 4}
        self._proxy.reset()


def row(name):
    return [{"type": "P", "data": {"name": name}}]


@pytest.fixture
def site(s3_root, proxy):
    site = Site(s3_root, proxy)
    with Graph.init(site.graph.uri, SCHEMA, **site.options) as graph:
        for name in ("a", "b"):
            graph.load(row(name), mode="overwrite")
            graph.maintenance.backup(site.backup.uri, **site.options)
    proxy.reset()
    return site


def test_lists_on_s3_that_lead_out_are_refused(site):
    objects, backup = ObjectStore(site.graph), ObjectStore(site.backup)
    with Graph.open(site.graph.uri, "r", **site.options) as graph:
        location = graph._handle.store.manifest(None).current().pins["node:P"].location
    table = location.partition("/")[2]
    forms = sample([form for form in HOSTILE_PATHS if "\ud800" not in form], 6, "paths on S3")
    paths = [form.replace("{t}", table).replace("{outside}", "/outside") for form in forms]
    point = f"points/{backup_points(site.backup.uri, **site.options)[-1].point}.json"
    good = json.loads(backup.read(point))
    for path in paths:
        for at in (0, 1):
            reported = json.loads(json.dumps(good))
            reported["files"][0][at] = path
            del reported["sum"]
            reported["sum"] = _sum(reported)
            backup.write(point, json.dumps(reported))
            with pytest.raises(StorageCorrupt):
                restore(site.backup.uri, site.new.uri, **site.options)
    with pytest.raises(StorageCorrupt):
        prune_backup(site.backup.uri, points=[backup.list("points")[0][:-5]], **site.options)
    assert ObjectStore(site.new).sizes_below() == {}
    for number, path in enumerate(paths):
        name = f"__recovery/{new_ulid()}.cleanup"
        about = {"location": path, "files": []} if number % 2 else {"files": [path]}
        about = {"location": location, **about, "versions": [], "life": None, "branch": "main"}
        about |= {"started_at": 1, "purpose": "cleanup", "table": "node:P"}
        if about["location"] != location or about["files"]:
            objects.write(name, json.dumps(about))
    removed = RemovedVersions({"../outside/tree/x": CopyRemovals("life", ((1, 2),))})
    objects.write(PATH, removed.to_text())
    with Graph.open(site.graph.uri, **site.options) as graph:
        graph.load(row("c"))
        graph.maintenance.cleanup(1, min_age=0)
        codes = {problem.code for problem in graph.maintenance.verify().problems}
    assert codes == {ProblemCode.MARKER_DAMAGED}
    site.must_be_untouched()


LOCATIONS = ("../outside", "nodes/../../outside", "s3://bucket/outside")


@pytest.mark.parametrize("location", rotating(LOCATIONS, 1, "locations on S3"))
def test_a_manifest_on_s3_that_leads_out_is_refused(site, location):
    with Graph.open(site.graph.uri, **site.options) as graph:
        graph._handle.store.publisher.publish(
            graph._handle.store.manifest(None),
            Publication({}, [VersionRow("node:Q", 1, None, 1)], [TableRow("node:Q", location)]),
        )
    for call in (
        lambda: Graph.open(site.graph.uri, **site.options),
        lambda: clone(site.graph.uri, site.new.uri, **site.options),
    ):
        with pytest.raises(StorageCorrupt):
            call()
    assert not verify_graph(site.graph.uri, **site.options).is_sound
    site.must_be_untouched()


def test_no_request_is_made_for_a_path_that_leads_out(site, s3_root):
    objects = ObjectStore(site.graph)
    for path in ("../outside/canary", "nodes/../../outside/canary", "/outside/canary"):
        for call in (
            objects.read,
            objects.read_bytes,
            objects.head,
            objects.exists,
            objects.delete,
            objects.delete_prefix,
            lambda p: objects.delete_all(["x", p]),
            lambda p: objects.write(p, "theirs"),
            lambda p: objects.write_bytes(p, b"theirs"),
            lambda p: objects.create(p, "theirs"),
            lambda p: objects.replace(p, "theirs", "x"),
            lambda p: objects.rename("_schema.pg", p),
            lambda p: copy_file(objects, p, objects, "here"),
            lambda p: copy_file(objects, "_schema.pg", objects, p),
        ):
            with pytest.raises(StorageCorrupt):
                call(path)
    site.must_be_untouched()


# -- prune ----------------------------------------------------------------------------------------


def needed(site: Site) -> set[str]:
    points = backup_points(site.backup.uri, **site.options)
    return {file.stored for point in points for file in point.files}


def stored(site: Site) -> set[str]:
    actual = ObjectStore(site.backup).sizes_below()
    return {path for path in actual if path.startswith(("files/", "objects/"))}


def test_points_of_a_backup_on_s3_are_pruned(site):
    first, second = (
        backup_point.point for backup_point in backup_points(site.backup.uri, **site.options)
    )
    dry = prune_backup(site.backup.uri, points=[second], dry_run=True, **site.options)
    assert dry.files > 0
    before = sum(ObjectStore(site.backup).sizes_below().values())
    report = prune_backup(site.backup.uri, points=[second], **site.options)
    assert (report.removed, report.kept, report.files) == ((second,), (first,), dry.files)
    assert before - sum(ObjectStore(site.backup).sizes_below().values()) > report.bytes > 0
    assert stored(site) == needed(site)
    restore(site.backup.uri, site.new.uri, **site.options)
    assert verify_graph(site.new.uri, **site.options).problems == ()
    with Graph.open(site.graph.uri, **site.options) as graph:
        graph.maintenance.backup(site.backup.uri, **site.options)
    left = {path.split("/")[0] for path in ObjectStore(site.backup).sizes_below()}
    assert left <= {"files", "objects", "points", "omnigraph-backup.json"}


@pytest.mark.slow
def test_an_interrupted_prune_on_s3_is_finished_by_the_next_backup(site, monkeypatch):
    def die(self, paths):
        raise KeyboardInterrupt

    newest = backup_points(site.backup.uri, **site.options)[-1].point
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete_all", die)
        with pytest.raises(KeyboardInterrupt):
            prune_backup(site.backup.uri, points=[newest], **site.options)
    assert stored(site) > needed(site)
    assert ObjectStore(site.backup).head(_MARK) is not None
    with Graph.open(site.graph.uri, **site.options) as graph:
        graph.maintenance.backup(site.backup.uri, **site.options)
    assert stored(site) == needed(site)
    assert ObjectStore(site.backup).head(_MARK) is None


def test_only_one_changes_a_backup_on_s3_at_a_time(site):
    before = ObjectStore(site.backup).sizes_below()
    with Graph.open(site.graph.uri, **site.options) as graph:
        graph._handle.store.timeouts = Timeouts(lease=0.0)
        with (
            lock_backup(ObjectStore(site.backup), Timeouts()),
            pytest.raises(Conflict, match="another backup"),
        ):
            graph.maintenance.backup(site.backup.uri, **site.options)
    assert ObjectStore(site.backup).sizes_below() == before
