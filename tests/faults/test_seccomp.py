"""Calls of another process that fail as they are told to, and leave what a failed call leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.steps import Step
from tests.faults import seccomp
from tests.faults.children import Children, report
from tests.faults.failing_calls import WatchedChild

REASON = seccomp.unusable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

CALLS = [
    Step("openat", "new", 1),
    Step("write", "new", 1),
    Step("write", "new", 2),
    Step("fsync", "new", 1),
    Step("ftruncate", "new", 1),
    Step("close", "new", 1),
    Step("rename", "named", 1),
    Step("link", "linked", 1),
    Step("mkdir", "folder", 1),
    Step("unlink", "named", 1),
]


def by_hand(root: Path) -> Iterator[None]:
    """Makes each kind of call once, two writes, and reports the number of the error."""
    yield
    seccomp.install()
    os.kill(os.getpid(), signal.SIGSTOP)
    raised = None
    try:
        descriptor = os.open(root / "new", os.O_CREAT | os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, b"a")
        os.write(descriptor, b"b")
        os.fsync(descriptor)
        os.ftruncate(descriptor, 1)
        os.close(descriptor)
        os.rename(root / "new", root / "named")
        os.link(root / "named", root / "linked")
        os.mkdir(root / "folder")
        os.unlink(root / "named")
    except OSError as error:
        raised = error.errno
    report(raised)
    os.kill(os.getpid(), signal.SIGSTOP)


def test_every_call_below_the_root_is_counted_and_none_other(family: Children, tmp_path: Path):
    with WatchedChild(family, by_hand, tmp_path, None, 0) as run:
        assert run.proceed() is None
        assert run.calls.steps == CALLS
        assert run.calls.failed is None


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("step", CALLS, ids=str)
def test_the_call_that_is_chosen_fails_with_its_error_and_has_no_effect(
    family: Children, tmp_path: Path, step: Step, code: int
):
    with WatchedChild(family, by_hand, tmp_path, step, code) as run:
        assert run.proceed() == code
        assert run.calls.failed == step
        assert run.calls.steps == CALLS[: CALLS.index(step) + 1]
        if step.call in ("openat", "rename", "link", "mkdir"):
            assert not (tmp_path / step.shape).exists()
        elif step.call == "unlink":
            assert (tmp_path / step.shape).exists()
        elif step.call == "close":
            with (tmp_path / "new").open() as file:  # it is closed all the same
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
