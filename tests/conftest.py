"""What every test shares: how much Hypothesis tries, its marker, and the seed of samples."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests.rotation import VARIABLE, rotation

pytest_plugins = [
    "tests.cpu_times",
    "tests.grouping",
    "tests.passed_tests",
    "tests.sampling",
    "tests.s3.fixtures",
    "tests.warm_commands",
]
# For doctests every module is imported; this one does its work then.
collect_ignore = ["fork_server_preload.py"]

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=20_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


# A shell without job control starts what runs in its background with Ctrl-C ignored, and every
# program of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and never search them for garbage.

    They live as long as the process. Every process of a run collects all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only where there are prompts: every process of a run looks."""
    collectors = yield
    without = [item for item in collectors if not isinstance(item, DoctestModule)]
    if len(without) < len(collectors) and b">>> " not in file_path.read_bytes():
        return without
    return collectors


def pytest_report_header() -> str:
    """The seed that chooses samples of large enumerations, and how to repeat this run."""
    return f"rotation: {VARIABLE}={rotation()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every Hypothesis test, so that `make fuzz` finds them."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
