"""One Spark per test process: a classic driver, and Spark Connect on the same Java."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.spark import SparkConfig, SparkEngine, open_spark
from tests.rotation import rotation
from tests.spark.javas import make_java

ROOT = Path(__file__).parent.parent.parent

SETTINGS = {
    # The quick compiler only: tests start often and compute little.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    # The functions that tests send are in the modules of the tests.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.tests.secret": "hush-7f3a \\ ü=:#\nand more",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


ENGINES = ("classic", "connect")


QUICK = 8
"""A quick run takes every second file, and of it one of so many tests that need Spark."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A quick run takes some of the tests that need Spark, and one way to reach it for each.

    The next days it takes the others, then the other way; the slow tests take all.
    """
    files: dict[Path, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        needs_spark = {"spark", "engine"} & set(getattr(item, "fixturenames", ()))
        if needs_spark and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sampled)
            if item.get_closest_marker("slow") is None:
                name = item.nodeid.replace(_engine_of(item) or "", "")
                files[item.path][name].append(item)
    for number, file in enumerate(sorted(files)):
        tests = files[file]
        step = min(QUICK, len(tests))
        days, other_file = divmod(number + rotation(), 2)
        for index, group in enumerate(tests.values()):
            turn = index + days
            for item in group:
                other_engine = _engine_of(item) not in (None, ENGINES[turn // step % 2])
                if other_file or turn % step or other_engine:
                    item.add_marker(pytest.mark.slow)


def _engine_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    engine = callspec and callspec.params.get("engine")
    return engine if engine in ENGINES else None


@pytest.fixture(scope="session")
def spark_cache(pytestconfig: pytest.Config) -> Path:
    """Where the class-data archive of the tests lies, from run to run."""
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("omnigraph")


@pytest.fixture(scope="session")
def spark_config(spark_cache: Path) -> SparkConfig:
    """Small, on this machine, two tasks at once."""
    return SparkConfig(
        master="local[2,4]", memory="1g", settings=SETTINGS, cache_dir=str(spark_cache)
    )


@pytest.fixture
def endless_java(tmp_path: Path) -> Path:
    """The home of a Java that starts and never answers."""
    return make_java(tmp_path / "java")


@pytest.fixture(scope="session")
def spark(spark_config: SparkConfig) -> Iterator[SparkEngine]:
    """The classic session of this test process."""
    with open_spark(spark_config) as engine:
        yield engine


@pytest.fixture(scope="session")
def connect_server(spark: SparkEngine) -> str:
    """The address of a Spark Connect server, in the Java of the classic session."""
    assert spark.jvm is not None
    java = spark.jvm.gateway.jvm
    name = "org.apache.spark.sql.connect.service.SparkConnectService"
    getattr(java, name).start(spark.session.sparkContext._jsc.sc())
    port = getattr(getattr(java, f"{name}$"), "MODULE$").localPort()
    return f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def connect_session(connect_server: str) -> Iterator[Any]:
    """A session that a user made on that server."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def _connect_engine(connect_session: Any) -> Iterator[SparkEngine]:
    with open_spark(session=connect_session) as engine:
        yield engine


@pytest.fixture
def connect(_connect_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> SparkEngine:
    """Spark Connect; while a test uses it, the functions of PySpark speak to it too."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return _connect_engine


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> SparkEngine:
    """Both ways to reach Spark."""
    name = "spark" if request.param == "classic" else "connect"
    actual: SparkEngine = request.getfixturevalue(name)
    return actual
