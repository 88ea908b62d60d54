"""However a program ends, no process and no file of Spark is left, and nothing was printed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.spark import SparkConfig
from tests.spark.children import Child, ended
from tests.spark.javas import SLEEPER
from tests.spark.processes import alive, descendants, processes_with, wait_until


@pytest.fixture
def config(spark_config: SparkConfig, spark_cache: Path) -> SparkConfig:
    """With the archive when there is one; building it is for the session of the tests."""
    has_one = any((spark_cache / "spark").glob("*.jsa"))
    return replace(spark_config, archive="auto" if has_one else "off")


def working(child: Child) -> bool:
    return len(list((child.folder / "marks").iterdir())) == 2


def test_closed_nothing_is_left_and_nothing_said(config):
    with Child(config, "close") as child:
        assert {"java", "python"} <= child.names()
        assert ended(child) == (0, "", "")


@pytest.mark.slow  # A load of which the program is killed shows it too, in test_driver_dies.
def test_killed_in_the_middle_of_a_job_nothing_is_left(config):
    with Child(config, "work_for_ever") as child:
        wait_until(lambda: working(child))
        child.process.kill()
        assert ended(child) == (-signal.SIGKILL, "", "")


@pytest.mark.slow
def test_closed_and_opened_again_the_program_is_as_it_was(config):
    with Child(config, "close_and_open_again") as child:
        assert ended(child) == (0, "", "")


@pytest.mark.slow
def test_ended_without_a_close_nothing_is_left_and_nothing_said(config):
    with Child(config, "just_end") as child:
        assert ended(child) == (0, "", "")


@pytest.mark.slow
def test_ended_by_an_exception_only_that_is_said(config):
    with Child(config, "raise_error") as child:
        status, out, err = ended(child)
    assert (status, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("\nLookupError: the program is wrong\n")


@pytest.mark.slow
def test_interrupted_at_the_terminal_nothing_is_left(config):
    with Child(config, "work_for_ever") as child:
        wait_until(lambda: working(child))
        os.killpg(child.process.pid, signal.SIGINT)
        status, out, err = ended(child)
    assert (status, out) == (-signal.SIGINT, "")
    assert err.endswith("\nKeyboardInterrupt\n")
    assert "java" not in err


def test_interrupted_while_java_starts_nothing_is_left(config, endless_java):
    with Child(
        replace(config, java_home=str(endless_java)), "keep_the_interruption", is_ready=False
    ) as child:
        wait_until(lambda: bool(processes_with(str(endless_java / SLEEPER))))
        below = descendants(child.process.pid)
        child.process.send_signal(signal.SIGINT)
        wait_until(lambda: not any(map(alive, below)))
        assert child.process.poll() is None
        child.go()
        assert child.process.wait() == 0


@pytest.mark.parametrize(
    "moment",
    [
        # Java answers, and nothing of ours names it yet.
        "omnigraph.spark.session.launch:Jvm.__init__",
        pytest.param("pyspark:SparkContext.__init__", marks=pytest.mark.slow),
        pytest.param("pyspark.sql:SparkSession.__init__", marks=pytest.mark.slow),
        pytest.param("omnigraph.spark.session.engine:_Driver.__init__", marks=pytest.mark.slow),
        pytest.param("omnigraph.spark.session.engine:SparkEngine.__init__", marks=pytest.mark.slow),
    ],
)
def test_interrupted_at_any_step_of_the_start_nothing_is_left(config, moment):
    with Child(config, "leave_nothing", is_ready=False, interrupt_at=moment) as child:
        status = child.process.wait()
        assert (status, *child.output()) == (0, "", "")


@pytest.mark.slow
def test_interrupted_while_it_ends_nothing_is_left_and_the_interrupt_is_raised(config):
    with Child(config, "close_interrupted") as child:
        assert ended(child) == (0, "", "")


@pytest.mark.slow
def test_told_to_end_with_all_its_processes_nothing_is_left(config):
    with Child(config, "work_for_ever") as child:
        wait_until(lambda: working(child))
        os.killpg(child.process.pid, signal.SIGTERM)
        assert ended(child) == (-signal.SIGTERM, "", "")


@pytest.mark.slow
def test_java_that_dies_is_a_typed_error_and_can_be_started_again(config):
    with Child(config, "work_without_java") as child:
        wait_until(lambda: any((child.folder / "marks").iterdir()))
        os.kill(child.said["java"], signal.SIGKILL)
        status, out, _ = ended(child)
    assert (status, out) == (0, "")
