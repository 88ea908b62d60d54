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
    """The typed error for a failure of the object store or the file system.

    A write that ran out of memory may have arrived, as any that failed on the way.
    """
    text = f"cannot {action} '{target}'"
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
        return _system(error, text, writes)
    if isinstance(error, store_errors.GenericError):
        return no_space_or_right(str(error), text) or _remote(text, writes)
    return StorageError(text)


def no_space_or_right(message: str, text: str) -> StorageError | None:
    """What a library's own words say about the disk, when they say that for sure."""
    match = _OS_ERROR.search(message)
    return None if match is None else _surely(int(match.group(1)), text)


def failed_look(message: str, text: str) -> StorageError | None:
    """What a library's own words say about a read that the system refused, if it did."""
    match = _OS_ERROR.search(message)
    return None if match is None else _of_system(int(match.group(1)), text)


def denied(text: str) -> StorageDenied:
    return StorageDenied(f"{text}: access is denied", hint="check permissions and credentials")


def _surely(code: int | None, text: str) -> StorageError | None:
    if code in _FULL:
        return StorageFull(f"{text}: no space is left", hint="free space and repeat")
    return denied(text) if code in _DENIED else None


def _system(error: OSError, text: str, writes: bool) -> StorageError:
    definite = _surely(error.errno, text)
    if definite is not None:
        return definite
    if error.errno is None:
        return _remote(text, writes)
    name = errno.errorcode.get(error.errno, str(error.errno))
    return _of_system(error.errno, text) or StorageError(f"{text}: {name}")


def _of_system(code: int, text: str) -> StorageUnavailable | None:
    """The error for a disk or a machine that does not do its work at the moment."""
    if code == errno.EIO:
        return StorageUnavailable(f"{text}: the disk failed (EIO)", hint="check the disk")
    if code in _TOO_MANY:
        return StorageUnavailable(
            f"{text}: too many files are open", hint="close some, or raise the limit (ulimit -n)"
        )
    return None


def _remote(text: str, writes: bool) -> StorageError:
    if writes:
        return StorageUnknown(f"{text}: no answer, the outcome is unknown")
    return StorageUnavailable(f"{text}: the store does not answer", hint="repeat later")
