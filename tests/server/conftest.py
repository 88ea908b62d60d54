"""The harness of the crash tests, for servers that meet dead writers."""

from __future__ import annotations

from tests.crash.conftest import crash

__all__ = ["crash"]
