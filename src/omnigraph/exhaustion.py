"""Recognises a lack of memory or threads, however a library reports it.

Python raises ``MemoryError``, the loader of shared libraries ``ImportError``, Arrow an exception of
its own, Rust panics, and the operating system returns an error number.
"""

from __future__ import annotations

import errno
import re

from omnigraph.errors import MemoryExceeded

# Compiled at their first use: few processes run out of memory.
_TEXT = (
    "cannot allocate memory|failed to map segment|cannot map zero-fill|cannot create shared object"
    "|failed to allocate|out of memory|memory allocation|std::bad_alloc|can't start new thread"
    rf"|\(os error {errno.ENOMEM}\)"
    "|failed to spawn|can't spawn|cannot spawn|unable to spawn|Resource temporarily unavailable"
)
# The wording of Rust libraries.
_NUMBER = f"(os error {errno.ENOMEM})"
_PANIC = "PanicException"


def as_memory_exceeded(error: BaseException) -> MemoryExceeded | None:
    """The typed error for a lack of memory or threads; ``None`` for other failures.

    >>> as_memory_exceeded(MemoryError()).code
    'memory_exceeded'
    """
    if isinstance(error, MemoryExceeded):
        return error
    if not any(map(_is_shortage, _chain(error))):
        return None
    return MemoryExceeded(
        "the process ran out of memory or threads",
        hint="raise its limits (ulimit -v, ulimit -u, or those of the container), or ask for less",
    )


def has_memory_limit() -> bool:
    """Whether the memory of this process is limited (``ulimit -v`` or ``-d``)."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, outermost first."""
    errors: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in errors:
        errors.append(step)
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    return errors


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        # The number decides: the text may quote an arbitrary value.
        return error.errno == errno.ENOMEM or (error.errno is None and _NUMBER in str(error))
    if isinstance(error, SystemError):
        # An extension failed and could not even create its exception.
        return has_memory_limit()
    is_library = isinstance(error, ImportError | RuntimeError) or type(error).__name__ == _PANIC
    return is_library and re.search(_TEXT, str(error), re.IGNORECASE) is not None
