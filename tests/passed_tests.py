"""Tests that have passed already: ``--passed FILE`` leaves them out and adds those that pass now.

A long run that was interrupted goes on with the tests that are left; see ``tools/slow_suites.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_OPTION = "--passed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, metavar="FILE", help="tests to leave out, one a line")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION)
    if path is not None:
        config.pluginmanager.register(_Passed(config, path), "omnigraph-passed-tests")


class _Passed:
    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._path = path
        # All processes of a run must leave out the same tests, also one that is started later.
        worker = getattr(config, "workerinput", None)
        self._is_worker = worker is not None
        if worker is not None:
            self._passed = frozenset(worker["passed_tests"])
        else:
            self._passed = frozenset(path.read_text("utf-8").splitlines() if path.exists() else ())

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        node.workerinput["passed_tests"] = sorted(self._passed)  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        gone = [item for item in items if without_group(item.nodeid) in self._passed]
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = [i for i in items if without_group(i.nodeid) not in self._passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._is_worker and report.when == "call" and report.passed:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{without_group(report.nodeid)}\n")


def without_group(nodeid: str) -> str:
    """The id of a test without the group that xdist appends.

    >>> without_group("tests/a.py::test_b[c]@crash 0")
    'tests/a.py::test_b[c]'
    """
    base, _, group = nodeid.rpartition("@")
    return base if base and not group.endswith("]") else nodeid
