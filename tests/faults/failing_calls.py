"""One system call of a process fails: each that is about a file below a root can be chosen.

Calls are counted over all threads, by kind and by the shape of the path; so the same call is met
again in another run, although names are random and threads take turns as they like.
"""

from __future__ import annotations

import os
import pickle
import re
import select
import socket
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Self

from tests.crash.harness import PATIENCE
from tests.crash.steps import SYNCS, Step, shape_of
from tests.faults.children import Child, Children
from tests.faults.seccomp import Listener, Notification

# Where the arguments of a call have the path that it is about: a descriptor, or the address of a
# name, alone or after the descriptor of its directory. Of two names it is the new one.
_DESCRIPTORS = {
    "read": 0,
    "pread64": 0,
    "readv": 0,
    "preadv": 0,
    "fstat": 0,
    "getdents64": 0,
    "mmap": 4,
    "write": 0,
    "writev": 0,
    "pwrite64": 0,
    "pwritev": 0,
    "pwritev2": 0,
    "sendfile": 0,
    "fsync": 0,
    "fdatasync": 0,
    "ftruncate": 0,
    "fallocate": 0,
    "close": 0,
    "copy_file_range": 2,
}
_NAMES = {
    "rename": 1,
    "link": 1,
    "mkdir": 0,
    "rmdir": 0,
    "unlink": 0,
    "stat": 0,
    "lstat": 0,
    "access": 0,
}
_NAMES_IN_DIRECTORIES = {
    "newfstatat": 0,
    "statx": 0,
    "faccessat": 0,
    "openat": 0,
    "mkdirat": 0,
    "unlinkat": 0,
    "renameat": 2,
    "renameat2": 2,
    "linkat": 2,
}
_AT_FDCWD = 0xFFFFFF9C
_UNUSUAL = re.compile(r"/(?:/|\.?$|\./)")
"""In a path that names its file in another way than others do."""


class FailingCalls:
    """Watches a process that waits at its gate with a filter installed."""

    def __init__(self, pid: int, root: str, wanted: Step | None = None, code: int = 0) -> None:
        self._listener = Listener(pid)
        self._cwd = os.readlink(f"/proc/{pid}/cwd")
        self._root = PurePosixPath(root)
        self._top = str(self._root)
        self.expect(wanted, code)

    def close(self) -> None:
        self._listener.close()

    def expect(self, wanted: Step | None, code: int) -> None:
        """Count from now on, and let one call fail."""
        self._wanted = wanted
        self._code = code
        self._counts = True
        self._seen: Counter[tuple[str, str]] = Counter()
        self.steps: list[Step] = []
        self.failed: Step | None = None

    def ignore(self) -> None:
        """Let all calls go on from now on, without a look at them."""
        self._counts = False

    def serve(self, until: socket.socket) -> None:
        """Answer calls until there is something to read."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(until, select.POLLIN)
        while True:
            ready = poll.poll(1_000 * PATIENCE)
            if not ready:
                raise TimeoutError("the process hangs")
            for descriptor, events in ready:
                if descriptor == until.fileno():
                    return
                if events & select.POLLIN:
                    self._take()
                else:
                    poll.unregister(self._listener)  # every thread has ended

    def unsynced(self) -> str | None:
        """The file that is there and was not synced, because the call that failed was to do it."""
        if self.failed is None or self.failed.call not in SYNCS:
            return None
        (path,) = self.failed.paths
        at = self.steps.index(self.failed)
        is_repeated = any(self._syncs(step, path) for step in self.steps[at + 1 :])
        return path if not is_repeated and self._is_used(path, self.steps[:at]) else None

    @property
    def changed(self) -> set[str]:
        """What changed in the directory whose sync failed, since it was last synced."""
        assert self.failed is not None
        return self._changed_in(self.failed.paths[0], self.steps[: self.steps.index(self.failed)])

    @staticmethod
    def _syncs(step: Step, path: str) -> bool:
        return step.call in SYNCS and step.paths == (path,)

    def _is_used(self, path: str, before: list[Step]) -> bool:
        """Whether a file or directory is there; if it has rows, whether a version names them.

        What was written again under another name, or given up, is in nobody's way; nor is a
        directory that was synced before and has not changed since.
        """
        changed = self._changed_in(path, before)
        if PurePosixPath(path).name == "data":
            return any(self._has_named_rows(name) for name in changed)
        if not changed and any(self._syncs(step, path) for step in before):
            return False
        if PurePosixPath(path).parent.name == "data":
            return self._has_named_rows(path)
        return os.path.lexists(Path(self._root, path))

    def _changed_in(self, folder: str, before: list[Step]) -> set[str]:
        """What was created in a directory, or removed, since it was last synced."""
        names: set[str] = set()
        synced: set[str] = set()
        for step in before:
            if self._syncs(step, folder):
                synced |= names
                names.clear()
            elif step.call not in SYNCS:
                own = {name for name in step.paths if str(PurePosixPath(name).parent) == folder}
                # Directories are also made where they exist.
                names |= own - synced if step.call.startswith("mkdir") else own
        return names

    def _has_named_rows(self, name: str) -> bool:
        path = Path(self._root, name)
        versions = path.parent.parent.rglob("*.manifest")
        return path.exists() and any(path.name.encode() in v.read_bytes() for v in versions)

    def _take(self) -> None:
        notification = self._listener.receive()
        if notification is None:
            return
        step = self._step_of(notification) if self._counts else None
        if step is not None:
            self.steps.append(step)
            if step == self._wanted and self.failed is None:
                self.failed = step
                # Only of a sync that failed it matters what comes after.
                self._counts = step.syncs
                self._listener.fail(notification, self._code)
                return
        self._listener.proceed(notification)

    def _step_of(self, notification: Notification) -> Step | None:
        call = notification.call
        path = self._below_root(self._path_of(notification))
        if path is None:
            return None
        if call == "close" and not self._listener.is_writable(notification.arguments[0]):
            return None
        kind = (call, shape_of(path))
        self._seen[kind] += 1
        return Step(*kind, self._seen[kind], (path,))

    def _below_root(self, path: str) -> str | None:
        """A path relative to the root, if it lies there."""
        if _UNUSUAL.search(path):
            path = str(PurePosixPath(path))
        if path == self._top:
            return "."
        return path.removeprefix(f"{self._top}/") if path.startswith(f"{self._top}/") else None

    def _path_of(self, notification: Notification) -> str:
        call, arguments = notification.call, notification.arguments
        if call in _DESCRIPTORS:
            target = self._listener.target_of(arguments[_DESCRIPTORS[call]] & 0xFFFFFFFF)
            return target.removesuffix(" (deleted)")
        if call in _NAMES:
            return self._joined(self._cwd, arguments[_NAMES[call]])
        position = _NAMES_IN_DIRECTORIES[call]
        directory = arguments[position] & 0xFFFFFFFF
        above = self._cwd if directory == _AT_FDCWD else self._listener.target_of(directory)
        return self._joined(above, arguments[position + 1])

    def _joined(self, directory: str, address: int) -> str:
        # Without a name the directory itself is meant.
        name = self._listener.text_at(address) if address else ""
        return os.path.join(directory, name) if name else directory


class Died(Exception):
    """A child ended before it reported anything."""


class WatchedChild:
    """A child that catches its own calls and then stops, from there to its end."""

    def __init__(
        self, family: Children, child: Child, root: Path, step: Step | None, code: int
    ) -> None:
        self._family = family
        self.pid = family.at_gate(child, root)
        self._ended = False
        assert family.stop_at_boundary(self.pid), family.output
        self.calls = FailingCalls(self.pid, str(root), step, code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill the child if it has not ended."""
        if not self._ended:
            self._family.drop(self.pid)
        self.calls.close()

    def proceed(self) -> object:
        """Let the child go until its next stop or its end; gives what it reports."""
        try:
            code = self._family.proceed(self.pid, self.calls.serve)
        except TimeoutError as hanging:
            raise Died(str(hanging)) from hanging
        self._ended = code is not None
        if code:
            raise Died(f"exit code {code}: {self._family.output[-300:]}")
        return self._family.reported()


class WatchedServant(WatchedChild):
    """A child that obeys one order after the other: it waits for each, stopped.

    Orders are pickled in a file. The calls with which a child prepares what it was told do not
    count, nor do those after its first report.
    """

    def __init__(self, family: Children, child: Child, root: Path, orders: Path) -> None:
        super().__init__(family, child, root, None, 0)
        self._orders = orders
        self.obeyed = 0

    def prepare(self, order: object, step: Step | None, code: int) -> None:
        """Give an order and let the child go until it stands before what may fail."""
        self.obeyed += 1
        self._orders.write_bytes(pickle.dumps(order))
        self.calls.ignore()
        self._go()
        self.calls.expect(step, code)

    def finish(self) -> None:
        """Let the child put away what it has opened; then it waits for an order."""
        self.calls.ignore()
        self._go()

    def _go(self) -> None:
        self.proceed()
        if self._ended:
            raise Died(self._family.output[-300:])
