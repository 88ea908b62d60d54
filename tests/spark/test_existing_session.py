"""A Spark that is there before us: a session of the program, a Java that waits, spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
import pyspark, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
from omnigraph.errors import SparkError
from omnigraph.spark import SparkConfig, open_spark
from tests.spark import work

def double(engine):
    assert engine.tasks(work.double, [1, 2, 3], "doubling") == [2, 4, 6]
"""


def run(command: list[str], program: str, tmp_path: Path) -> str:
    """What a program prints on its output; it must end well."""
    path = tmp_path / "program.py"
    path.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{PROGRAM}{program}", "utf-8")
    done = subprocess.run(
        [*command, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_session_of_a_program_is_used_and_left_as_it_is(tmp_path):
    program = """
theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with open_spark() as engine:
    assert not engine.owns and engine.jvm is None
    assert engine.slots == 1
try:
    open_spark(SparkConfig("local[2]"))
except SparkError as error:
    print(error)
print(theirs.range(4).count())
theirs.stop()

# Their Java waits; we start a session in it and leave it to them.
with open_spark(SparkConfig("local[2,4]")) as engine:
    assert engine.owns and not engine.jvm.is_ours
    assert engine.session.sparkContext.master == "local[2,4]"
    double(engine)
    java = engine.jvm
assert java.is_alive() and SparkContext._gateway is not None
print(SparkSession.builder.master("local[1]").getOrCreate().range(5).count())
"""
    assert run([sys.executable], program, tmp_path).splitlines() == [
        "Spark runs in this process already, with master 'local[1]'",
        "4",
        "5",
    ]


def test_under_spark_submit_its_master_and_settings_count(tmp_path):
    program = """
with open_spark() as engine:
    assert engine.owns and not engine.jvm.is_ours
    context = engine.session.sparkContext
    print(context.master, context.getConf().get("spark.mine"))
    print(engine.session.conf.get("spark.sql.session.timeZone"))
    double(engine)
"""
    submit = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[1]"),
        *("--conf", "spark.mine=yes"),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}"),
    ]
    assert run(submit, program, tmp_path).splitlines() == ["local[1] yes", "UTC"]
