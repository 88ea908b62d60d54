"""The keys of cursors in an object store: shared, replaced by one of several processes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.api.cursor_keys import ACCEPTED_SECONDS, PATH, SIGNING_SECONDS, StoredCursorKeys
from omnigraph.api.cursors import CursorScope, PageCursor
from omnigraph.errors import InvalidCursor
from omnigraph.storage.objects.store import ObjectStore

SCOPE = CursorScope.of("query q() {}", None, None, "ana", "", "main")
CURSOR = PageCursor(SCOPE, "01ABC", 5, 1_700_000_000_000, "")


def test_processes_share_keys_and_replace_them_together(s3_root):
    now = [1_800_000_000.0]
    processes = [StoredCursorKeys(ObjectStore(s3_root("g.omni")), lambda: now[0]) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert len({key.key_id for key in pool.map(StoredCursorKeys.signing, processes)}) == 1
        old = CURSOR.text(processes[0])
        now[0] += SIGNING_SECONDS
        assert len({key.key_id for key in pool.map(StoredCursorKeys.signing, processes)}) == 1
    assert len(json.loads(ObjectStore(s3_root("g.omni")).read(PATH))["keys"]) == 2
    new = CURSOR.text(processes[1])
    for process in processes:
        assert PageCursor.parse(old, process, SCOPE) == CURSOR
        assert PageCursor.parse(new, process, SCOPE) == CURSOR
    now[0] += ACCEPTED_SECONDS
    for process in processes:
        with pytest.raises(InvalidCursor):
            PageCursor.parse(old, process, SCOPE)
