"""Processes for tests, born in milliseconds.

A fresh interpreter needs a second of processor time to import Lance and Arrow. These processes are
forked from a server that has imported them and has used nothing, so that it has one thread and no
lock that anybody could hold. A process that has used Lance itself must never fork.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import os
import warnings
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest import mock

from tests.crash.zygote import ENVIRONMENT, IMPORTED

ROOT = Path(__file__).parent.parent
USED = ("omnigraph.api.graph", "omnigraph.api.load", "pytest")
"""What processes of tests need besides."""


@functools.cache
def fork_context() -> ForkServerContext:
    """How to start such processes; the server runs as long as this process does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fork_server_preload"])
    with mock.patch.dict(os.environ, ENVIRONMENT), contextlib.chdir(ROOT):
        forkserver.ensure_running()
    return context


def preload() -> None:
    """What the server does before its first fork."""
    for name in (*IMPORTED, *USED):
        importlib.import_module(name)
    # Lance warns about every fork; the reason why it is allowed here stands above.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    threads = Path("/proc/self/task")
    if threads.exists() and len(list(threads.iterdir())) != 1:
        raise RuntimeError("the fork server has threads, so it must not fork")
