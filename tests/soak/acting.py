"""How the processes of the soak run: their time, their logs, and writes that are acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from omnigraph import Graph
from omnigraph.commit import manifest
from omnigraph.errors import CommitNotFound, Conflict, OutcomePending
from omnigraph.maintain.cleanup import retention

PATIENCE = 60.0
"""Seconds after which a write that is pending has to be settled."""


@contextmanager
def sooner(min_age: float) -> Iterator[None]:
    """Cleanup may remove what is so old, and readers look for it in half that time.

    The product has a minute for that; a short run would see nothing go.
    """
    with (
        mock.patch.object(manifest, "LISTS_AFTER", min_age / 2),
        mock.patch.object(retention, "READERS", timedelta(seconds=min_age)),
    ):
        yield


class Over(Exception):
    """The time is up; what was being tried has not happened."""


class TooBusy(Exception):
    """Others were faster every time; what was being tried has not happened."""


@dataclass(slots=True)
class Act:
    """One thread of one process: a part that somebody plays until the time is up.

    Whoever has to make a commit goes on until there is one, however slow the machine is.
    ``min_age`` is how many seconds cleanup leaves what readers may still look at.
    """

    graph: Graph
    name: str
    seed: int
    log_path: Path
    seconds: float
    min_age: float
    over: threading.Event
    needs_commit: bool = False
    chance: random.Random = field(init=False)
    refused: Counter[str] = field(default_factory=Counter)
    end: float = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.name}")
        self.log_path.touch()
        self.end = time.monotonic() + self.seconds

    @property
    def is_over(self) -> bool:
        is_late = time.monotonic() >= self.end
        return self.over.is_set() or (is_late and not self.needs_commit)

    def pause(self, seconds: float) -> None:
        """Leave the machine to others; ends at once when somebody has failed."""
        self.over.wait(min(seconds, max(self.end - time.monotonic(), 0)))

    def log(self, **facts: Any) -> None:
        if "commits" in facts:
            self.needs_commit = False
        with self.log_path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def reported(self) -> dict[str, int]:
        """The refusals since the last call, for the log."""
        actual = dict(self.refused)
        self.refused.clear()
        return actual

    def acknowledged(
        self, write: Callable[[], Any], most: int | None = None
    ) -> tuple[str | None, Any]:
        """Write until it is acknowledged: the commit, and what the write returned.

        Somebody who was faster is a reason to try again, ``most`` times where that is given. A
        write that is pending is looked up and never repeated.
        """
        for tried in count(1):
            try:
                done = write()
                return done.commit_id, done
            except OutcomePending as error:
                self.refused[error.code] += 1
                commit = self._outcome(str(error.details["commit_id"]))
                if commit is not None:
                    return commit, None
            except Conflict as error:
                if not error.retryable:
                    raise
                self.refused[error.code] += 1
            if self.is_over:
                raise Over
            if tried == most:
                raise TooBusy
        raise AssertionError

    def _outcome(self, commit_id: str) -> str | None:
        """The commit that a pending write became, of itself or by a recovery; or none."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            # In this order: what is settled between the two looks is seen by the second.
            is_recovered = commit_id not in self.graph._handle.store.sidecars.list()
            try:
                return self.graph.commit(commit_id).commit_id
            except CommitNotFound:
                if is_recovered:
                    return None
            self.graph.refresh()
            self.over.wait(0.1)
        raise AssertionError(f"commit {commit_id} was never settled")
