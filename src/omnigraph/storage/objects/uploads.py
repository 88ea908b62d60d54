"""New objects that are written to the store in the background, all at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import ObjectInfo
from omnigraph.storage.objects.requests import request_pool
from omnigraph.storage.objects.store import ObjectStore


class Upload:
    """Objects on their way to the store. Their names are new, so they have no readers yet."""

    def __init__(self, objects: ObjectStore, files: Mapping[str, bytes]) -> None:
        self._objects = objects
        self._started: dict[str, Future[ObjectInfo]] = {
            path: request_pool().submit(objects.put_new, path, data) for path, data in files.items()
        }

    def finish(self) -> dict[str, ObjectInfo]:
        """Wait until all of them are stored; raises if one is not."""
        infos = {}
        for path, started in self._started.items():
            # Not a write of unknown outcome: nothing refers to an object that is missing.
            with storage_call("write", self._objects.root.path(path)):
                infos[path] = started.result()
        return infos
