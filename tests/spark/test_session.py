"""Where a session comes from, who shares it, and who ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest

from omnigraph.errors import Closed, InputError, SparkError, SparkUnavailable
from omnigraph.spark import SparkConfig, SparkEngine, open_spark
from omnigraph.spark.session.classic import start_classic
from omnigraph.spark.session.launch import start_jvm
from tests.spark import work
from tests.spark.conftest import ROOT, SETTINGS
from tests.spark.processes import arguments_of, descendants

pytestmark = pytest.mark.rotates(3)


def test_who_asks_for_nothing_in_particular_shares_what_runs(spark: SparkEngine):
    with open_spark() as other:
        assert other.session is spark.session
        assert other.owns
    assert spark.tasks(work.double, [1], "doubling") == [2]


def test_who_asks_for_the_same_shares_it_too(spark: SparkEngine, spark_config: SparkConfig):
    with open_spark(spark_config) as other:
        assert other.session is spark.session


@pytest.mark.parametrize(
    "config",
    [
        SparkConfig("local[1,4]"),
        SparkConfig(remote="sc://127.0.0.1:1"),
        SparkConfig(settings={"spark.sql.shuffle.partitions": "3"}),
    ],
)
def test_a_second_driver_in_a_process_is_refused(spark: SparkEngine, config: SparkConfig):
    with pytest.raises(SparkError, match="runs in this process already"):
        open_spark(config)


def test_a_closed_handle_says_so(spark: SparkEngine):
    other = open_spark()
    other.close()
    other.close()
    with pytest.raises(Closed):
        other.tasks(work.double, [1], "doubling")


# -- a session that the user made -----------------------------------------------------------------


@pytest.fixture(params=["classic", "connect"])
def given(request: pytest.FixtureRequest, spark: SparkEngine):
    """A session of the user, with settings of the user."""
    session = (
        spark.session.newSession()
        if request.param == "classic"
        else request.getfixturevalue("connect_session")
    )
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session.conf.set("spark.sql.shuffle.partitions", "3")
    yield session
    session.conf.unset("spark.sql.session.timeZone")
    session.conf.unset("spark.sql.shuffle.partitions")


def test_a_given_session_is_used_and_never_stopped(given):
    with open_spark(session=given) as engine:
        assert not engine.owns
        assert engine.tasks(work.double, [1, 2], "doubling") == [2, 4]
    assert given.range(3).count() == 3


def test_a_given_session_keeps_its_settings_and_ours_has_our_own(given):
    with open_spark(SparkConfig(settings={"spark.sql.x": "1"}), session=given) as engine:
        get = engine.session.conf.get
        assert get("spark.sql.session.timeZone") == "UTC"
        assert get("spark.sql.shuffle.partitions") == "3"
        assert get("spark.sql.x") == "1"
        assert get("spark.sql.execution.arrow.pyspark.validateSchema.enabled") == "true"
    assert given.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert given.conf.get("spark.sql.x", "none") == "none"


def test_a_given_session_with_another_master_than_asked_for_is_refused(spark: SparkEngine):
    with pytest.raises(SparkError, match=r"with master 'local\[2,4\]'"):
        open_spark(SparkConfig("local[7]"), session=spark.session)


# -- how it runs ----------------------------------------------------------------------------------


def test_times_are_instants_in_any_zone(engine: SparkEngine):
    frame = engine.session.sql(
        "SELECT timestamp'2024-07-01 12:00:00' AS t, current_timezone() AS z"
    )
    row = frame.toArrow().to_pylist()[0]
    assert row == {"t": datetime(2024, 7, 1, 12, tzinfo=UTC), "z": "UTC"}


def test_settings_arrive_as_they_are_and_no_command_line_shows_them(spark: SparkEngine):
    given = SETTINGS["spark.tests.secret"]
    assert spark.session.sparkContext.getConf().get("spark.tests.secret") == given
    assert spark.jvm is not None
    below = descendants(os.getpid())
    assert spark.jvm.pid in below
    assert not any("hush-7f3a" in text for item in below for text in arguments_of(item))


def test_nothing_listens_but_on_loopback(spark: SparkEngine, connect_server: str):
    assert spark.jvm is not None
    listening = listeners(spark.jvm.pid)
    assert int(connect_server.rpartition(":")[2]) in {port for _, port in listening}
    assert {host for host, _ in listening} <= {"127.0.0.1", "::1"}


def listeners(process: int) -> set[tuple[str, int]]:
    """Host and port of every socket on which a process waits."""
    folder = Path(f"/proc/{process}")
    own = set()
    for descriptor in (folder / "fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except OSError:
            continue
    matches = set()
    for name in ("tcp", "tcp6"):
        for line in (folder / "net" / name).read_text("utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                host, port = fields[1].split(":")
                matches.add((address(host), int(port, 16)))
    return matches


def address(text: str) -> str:
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    actual = ip_address(b"".join(words))
    return str(getattr(actual, "ipv4_mapped", None) or actual)


# -- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("pyspark", "PySpark is not installed"),
        ("pandas", "pandas, which PySpark needs, is not installed"),
    ],
)
def test_a_missing_package_is_one_clear_line(monkeypatch, package, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SparkUnavailable) as caught:
        open_spark()
    assert caught.value.message == message
    assert caught.value.hint == "pip install 'omnigraph[spark]'"


def test_an_older_pyspark_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(SparkUnavailable, match=r"4\.3 or newer is needed, and 3\.5\.1 is"):
        open_spark()


def test_a_java_that_fails_is_one_clear_line(tmp_path: Path):
    """It looks right, and ends at once without an error."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Invalid maximum heap size: -Xmx1g'\n", "utf-8")
    program.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n', "utf-8")
    with pytest.raises(SparkUnavailable) as caught:
        start_jvm(SparkConfig(java_home=str(tmp_path)))
    assert caught.value.message == "Java cannot take the memory that Spark was given"


def test_everything_else_works_without_pyspark():
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import omnigraph, omnigraph.spark, omnigraph.api.graph\n"
        "from omnigraph.spark import SparkConfig, open_spark\n"
        "try:\n    open_spark(SparkConfig())\n"
        "except omnigraph.OmniGraphError as error:\n    print(error.code, '|', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("spark_unavailable | PySpark is not installed\n", "")


# -- Spark Connect --------------------------------------------------------------------------------


def test_no_server_is_one_clear_line_without_the_token(monkeypatch):
    from omnigraph.spark.session import connect

    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 0.5)
    with pytest.raises(SparkUnavailable) as caught:
        connect.connected(SparkConfig(remote="sc://127.0.0.1:9/;token=very-secret;use_ssl=true"))
    assert caught.value.message == "no Spark Connect server answers at 127.0.0.1:9"
    assert "very-secret" not in f"{caught.value} {caught.value.hint} {caught.value.details}"


@pytest.mark.parametrize(
    "remote", ["sc://", "sc://host/path", "sc://host/;token", "sc://host:port", "sc://host/;a=b=c"]
)
def test_a_wrong_address_is_an_error_of_the_input(remote):
    from omnigraph.spark.session.connect import connected

    with pytest.raises(InputError, match="invalid address of a Spark Connect server"):
        connected(SparkConfig(remote=remote))


def test_a_process_that_has_used_a_server_starts_no_driver_of_its_own(monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(SparkError, match="cannot start Spark itself"):
        start_classic(SparkConfig())


def test_a_program_of_its_own_connects_and_leaves(connect_server: str):
    """No Java beside it; what it uses of PySpark's functions speaks to the server."""
    program = (
        "import sys, pyspark.sql.functions as F\n"
        "from omnigraph.settings import Settings\n"
        "from omnigraph.spark import SparkConfig, open_spark\n"
        "from tests.spark import work\n"
        "config = SparkConfig.from_options(Settings.from_environ().spark_options())\n"
        "with open_spark(config) as engine:\n"
        "    assert engine.is_connect and engine.owns and engine.jvm is None\n"
        "    assert engine.tasks(work.double, [1, 2], 'doubling') == [2, 4]\n"
        "    assert engine.session.range(3).filter(F.col('id') > 0).count() == 2\n"
        "    with open_spark() as other:\n"
        "        assert other.session is engine.session\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "SPARK_REMOTE": connect_server, "OMNIGRAPH_SPARK_MASTER": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
