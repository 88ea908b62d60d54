"""Translates the errors of the object store.

Library texts are not shown: they contain build paths and change with every release. The original is
kept as the cause, for ``--debug``.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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

# The form in which Rust libraries report an operating system error.
_OS_ERROR = r"\(os error (\d+)\)"


@contextmanager
def storage_call(action: str, target: str, *, writes: bool = False) -> Iterator[None]:
    """Translate what a storage call raises into errors of this package.

    A write that failed in transit may have arrived: its outcome is unknown, and the caller must
    check it, never repeat it blindly.
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
    # A write that ran out of memory may have arrived, like any that failed in transit.
    shortage = None if writes else as_memory_exceeded(error)
    if shortage is not None:
        return shortage
    if isinstance(error, FileNotFoundError) or _is_of_store(error, "NotFoundError"):
        return StorageMissing(f"{text}: it does not exist")
    refusals = ("PermissionDeniedError", "UnauthenticatedError")
    if isinstance(error, PermissionError) or _is_of_store(error, *refusals):
        return denied(text)
    if isinstance(error, OSError):
        definite = disk_refusal(error.errno, text) or system_failure(error.errno, text)
        if definite is None and error.errno is not None:
            name = errno.errorcode.get(error.errno, str(error.errno))
            definite = StorageError(f"{text}: {name}")
        return definite or unanswered(text, writes)
    if _is_of_store(error, "GenericError"):
        return disk_refusal(system_code(str(error)), text) or unanswered(text, writes)
    return StorageError(text)


def _is_of_store(error: Exception, *names: str) -> bool:
    """Whether an error is one of those of ``obstore``, which only a graph on S3 loads."""
    store_errors = sys.modules.get("obstore.exceptions")
    return store_errors is not None and isinstance(
        error, tuple(getattr(store_errors, name) for name in names)
    )


def system_code(message: str) -> int | None:
    """The operating system error code in the message of a library."""
    match = re.search(_OS_ERROR, message)
    return None if match is None else int(match.group(1))


def denied(text: str) -> StorageDenied:
    return StorageDenied(f"{text}: access is denied", hint="check permissions and credentials")


def disk_refusal(code: int | None, text: str) -> StorageError | None:
    """The error for a full disk or denied access: certainly nothing was written."""
    if code in _FULL:
        return StorageFull(f"{text}: no space is left", hint="free space and repeat")
    return denied(text) if code in _DENIED else None


def system_failure(code: int | None, text: str) -> StorageUnavailable | None:
    """The error for a failing disk or exhausted system resources."""
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
