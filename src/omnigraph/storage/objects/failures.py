"""The errors of the object store, translated once.

No text of a library is shown: it would name build paths, and it changes with every release. The
original is kept as the cause, for ``--debug``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as store_errors

from omnigraph.errors import (
    MemoryExceeded,
    OmniGraphError,
    StorageDenied,
    StorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.exhaustion import as_memory_exceeded

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_TOO_MANY = {errno.EMFILE, errno.ENFILE}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}

# How Rust libraries word an error of the operating system.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def storage_call(action: str, target: str, *, writes: bool = False) -> Iterator[None]:
    """Turn what a storage call raises into our errors.

    A write that failed on the way may have arrived: its outcome is unknown, and it is for the
    caller to look, never to repeat it blindly.
    """
    try:
        yield
    except OmniGraphError:
        raise
    except Exception as error:
        raise translate(error, action, target, writes=writes) from error


def translate(
    error: Exception, action: str, target: str, *, writes: bool = False
) -> StorageError | MemoryExceeded:
    """The typed error for a failure of the object store or the file system."""
    text = f"cannot {action} '{target}'"
    # A write that ran out of memory may have arrived, as any that failed on the way.
    shortage = None if writes else as_memory_exceeded(error)
    if shortage is not None:
        return shortage
    if isinstance(error, FileNotFoundError | store_errors.NotFoundError):
        return StorageMissing(f"{text}: it does not exist")
    refusals = (
        PermissionError,
        store_errors.PermissionDeniedError,
        store_errors.UnauthenticatedError,
    )
    if isinstance(error, refusals):
        return denied(text)
    if isinstance(error, OSError):
        definite = disk_refusal(error.errno, text) or system_failure(error.errno, text)
        if definite is None and error.errno is not None:
            name = errno.errorcode.get(error.errno, str(error.errno))
            definite = StorageError(f"{text}: {name}")
        return definite or unanswered(text, writes)
    if isinstance(error, store_errors.GenericError):
        return disk_refusal(system_code(str(error)), text) or unanswered(text, writes)
    return StorageError(text)


def system_code(message: str) -> int | None:
    """The error of the operating system that a library names in its own words."""
    match = _OS_ERROR.search(message)
    return None if match is None else int(match.group(1))


def denied(text: str) -> StorageDenied:
    return StorageDenied(f"{text}: access is denied", hint="check permissions and credentials")


def disk_refusal(code: int | None, text: str) -> StorageError | None:
    """The error for a disk that is full or denies access: nothing was written for sure."""
    if code in _FULL:
        return StorageFull(f"{text}: no space is left", hint="free space and repeat")
    return denied(text) if code in _DENIED else None


def system_failure(code: int | None, text: str) -> StorageUnavailable | None:
    """The error for a disk or a machine that does not do its work at the moment."""
    if code == errno.EIO:
        return StorageUnavailable(f"{text}: the disk failed (EIO)", hint="check the disk")
    if code in _TOO_MANY:
        return StorageUnavailable(
            f"{text}: too many files are open", hint="close some, or raise the limit (ulimit -n)"
        )
    return None


def unanswered(text: str, writes: bool) -> StorageError:
    """The error for a store that does not answer."""
    if writes:
        return StorageUnknown(f"{text}: no answer, the outcome is unknown")
    return StorageUnavailable(f"{text}: the store does not answer", hint="repeat later")
