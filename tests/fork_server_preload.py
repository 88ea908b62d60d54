"""Imported by the fork server alone; see ``fork_server``."""

from tests.fork_server import preload

preload()
