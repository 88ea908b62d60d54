"""The errors of Lance, translated once.

Lance tells most of its failures apart only by their text, and by different exceptions for the same
thing. The patterns stand here and nowhere else; tests pin each of them, so that a release that
words one differently turns red.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from lance.commit import CommitConflictError

from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    InternalError,
    OmniGraphError,
    StorageCorrupt,
    StorageError,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.storage.failures import translate

_CONFLICT = re.compile(
    "Commit conflict|commit conflict|Incompatible transaction|Too many concurrent writers"
)
_MISSING = re.compile("was not found|Not found|not found|does not exist|Ref not found")
_EXISTS = re.compile("already exists")
_CORRUPT = re.compile("orrupt|Invalid user input|failed to decode|magic|Encountered corrupt", re.I)
_TRANSIENT = re.compile(
    r"503|429|SlowDown|timed? ?out|connection|error sending request|Generic S3 error", re.I
)


@contextmanager
def lance_call(action: str, target: str, *, writes: bool = False) -> Iterator[None]:
    """Turn what a call of Lance raises into our errors."""
    try:
        yield
    except OmniGraphError:
        raise
    except Exception as error:
        raise translate_lance(error, action, target, writes=writes) from error


def translate_lance(
    error: Exception, action: str, target: str, *, writes: bool = False
) -> OmniGraphError:
    """The typed error for a failure of Lance."""
    text = f"cannot {action} '{target}'"
    said = str(error)
    if isinstance(error, CommitConflictError) or _CONFLICT.search(said):
        return Conflict(f"{text}: another writer was faster", hint="refresh and retry")
    if isinstance(error, OSError) and error.errno is not None:
        return translate(error, action, target, writes=writes)
    if _EXISTS.search(said):
        return AlreadyExists(f"{text}: it exists already")
    if _TRANSIENT.search(said):
        return _unanswered(text, writes)
    if _MISSING.search(said):
        return StorageMissing(f"{text}: it does not exist")
    if isinstance(error, pa.ArrowInvalid) or _CORRUPT.search(said):
        return StorageCorrupt(f"{text}: its data cannot be read")
    if isinstance(error, TypeError | ValueError | KeyError):
        return InternalError(f"{text}: the call was refused")
    return _unanswered(text, writes) if writes else StorageError(text)


def _unanswered(text: str, writes: bool) -> StorageError:
    if writes:
        return StorageUnknown(f"{text}: no answer, the outcome is unknown")
    return StorageUnavailable(f"{text}: the store does not answer", hint="repeat later")
