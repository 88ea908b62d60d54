"""A job of this process: its record, which it keeps, and whether it shall end."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from omnigraph.errors import Cancelled, OmniGraphError
from omnigraph.progress import Progress
from omnigraph.read.limits import Cancel
from omnigraph.server.jobs.records import JobProgress, JobRecord, JobRecords

_WRITE_SECONDS = 0.5
"""The shortest time between two records of progress."""
_BEAT_SECONDS = 10.0
"""The longest time between two records of a running job."""


class RunningJob:
    """A job of this process."""

    def __init__(self, records: JobRecords, record: JobRecord) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._last = 0.0
        self._is_over = False
        self.record = record
        self.cancel = Cancel()
        """Set when the job shall end."""

    def on_progress(self, progress: Progress) -> None:
        """Note how far the job is; raises ``Cancelled`` if it shall end."""
        self.check()
        self.show(progress)

    def show(self, progress: Progress) -> None:
        """Note how far the job is."""
        shown = JobProgress(
            progress.phase, progress.done, progress.total, progress.unit, dict(progress.detail)
        )
        with self._lock:
            self.record = self.record.changed(progress=shown)
            if time.monotonic() - self._last >= _WRITE_SECONDS:
                self._write()

    def check(self) -> None:
        """Raise ``Cancelled`` if the job shall end: a safe point, as nothing is half done."""
        if self.cancel.is_set:
            raise Cancelled(
                "the job was cancelled", hint="its record lists the commits that it made, if any"
            )

    def beat(self) -> None:
        """Show that the process is alive, and see whether somebody else asks to stop."""
        if not self.cancel.is_set:
            with suppress(OmniGraphError):
                if self._records.wants_cancel(self.record.id):
                    self.request_cancel()
        with self._lock:
            if not self._is_over and time.monotonic() - self._last >= _BEAT_SECONDS:
                self._write()

    def request_cancel(self) -> None:
        """End the job at its next safe point."""
        self.cancel.set()
        with self._lock:
            self.record = self.record.changed(is_cancel_requested=True)
            if not self._is_over:
                self._write()

    def note(self, **changes: Any) -> None:
        """Record a step that must not be lost."""
        with self._lock:
            self.record = self._records.write(self.record.changed(**changes), is_durable=True)
            self._last = time.monotonic()
            self._is_over = self.record.status.is_final

    def drop_cancel(self) -> None:
        """The job has ended: nothing is left to stop."""
        with suppress(OmniGraphError):
            self._records.drop_cancel(self.record.id)

    def _write(self) -> None:
        # A record of progress that cannot be written changes nothing for the job.
        with suppress(OmniGraphError):
            self.record = self._records.write(self.record, is_durable=False)
        self._last = time.monotonic()
