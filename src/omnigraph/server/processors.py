"""The processor that the event loop of a reader runs on.

Linux wakes a thread on an idle processor, else on the one that it ran on before. A processor on
which the writer runs is not idle, however nice the writer is. So readers and clients would queue on
one processor while the writer has the other one for itself. If every processor has its reader, each
reader wakes on its own and interrupts the writer there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

_TASKS = "/proc/self/task"
_SECONDS = 1.0


def processor_of(reader: int, readers: int) -> int | None:
    """The processor of a reader, counted from 0; none unless all processors have equally many.

    With fewer readers than processors there is an idle one to wake on, and a machine that many
    servers share must not have all of them on its first processors.
    """
    if not hasattr(os, "sched_getaffinity") or not os.path.isdir(_TASKS):
        return None
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) == 1 or readers % len(usable):
        return None
    return usable[reader % len(usable)]


class OwnProcessor:
    """Keeps the calling thread, and no other thread of its process, on one processor.

    A thread inherits the processors of the one that starts it. Those that the event loop starts,
    by Python or by a library, are set free again.
    """

    def __init__(self, processor: int) -> None:
        self._usable = os.sched_getaffinity(0)
        self._own = {processor}
        self._thread = threading.get_native_id()

    def take(self, loop: asyncio.AbstractEventLoop) -> None:
        import pyarrow as pa

        # Before: they count the processors of the thread that first asks.
        pa.cpu_count()
        import omnigraph.read.threads  # noqa: F401

        try:
            os.sched_setaffinity(self._thread, self._own)
        except OSError:
            return  # the processor is gone
        self._free_others(loop)

    def _free_others(self, loop: asyncio.AbstractEventLoop) -> None:
        for name in os.listdir(_TASKS):
            thread = int(name)
            with suppress(OSError):  # it has ended
                if thread != self._thread and os.sched_getaffinity(thread) == self._own:
                    os.sched_setaffinity(thread, self._usable)
        loop.call_later(_SECONDS, self._free_others, loop)
