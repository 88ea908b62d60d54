"""What users can say about Spark, and what is refused."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError
from omnigraph.settings import Settings
from omnigraph.spark.session.config import SparkConfig, cores


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"master": "local", "remote": "sc://host"}, "either a master or a Spark Connect server"),
        ({"remote": "local[2]"}, "starts with sc://"),
        ({"archive": "maybe"}, "auto, build, off, not 'maybe'"),
        ({"settings": {"driver.memory": "1g"}}, "invalid setting 'driver.memory'"),
        ({"settings": {"spark.ui.enabled": False}}, "spark.ui.enabled must be text, not bool"),
        ({"settings": {"spark.master": "local"}}, "spark.master is given as master"),
        ({"settings": {"spark.remote": "sc://host"}}, "spark.remote is given as remote"),
    ],
)
def test_a_wrong_configuration_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        SparkConfig(**arguments)


def test_the_environment_is_understood():
    settings = Settings.from_environ(
        {
            "SPARK_REMOTE": "sc://host",
            "OMNIGRAPH_SPARK_MEMORY": "4g",
            "OMNIGRAPH_SPARK_ARCHIVE": "off",
            "PYSPARK_PYTHON": "/opt/python",
            "JAVA_HOME": "/opt/java",
            "OMNIGRAPH_CACHE_DIR": "/var/cache/x",
        }
    )
    assert SparkConfig.from_options(settings.spark_options()) == SparkConfig(
        remote="sc://host",
        memory="4g",
        python="/opt/python",
        java_home="/opt/java",
        cache_dir="/var/cache/x",
        archive="off",
    )


def test_a_master_for_omnigraph_wins_over_the_server_of_other_programs():
    environ = {"SPARK_REMOTE": "sc://host", "OMNIGRAPH_SPARK_MASTER": "spark://host:7077"}
    config = SparkConfig.from_options(Settings.from_environ(environ).spark_options())
    assert (config.master, config.remote) == ("spark://host:7077", "")


def test_an_address_with_a_token_is_not_shown():
    config = SparkConfig(remote="sc://host/;token=very-secret", settings={"spark.x": "very-secret"})
    settings = Settings.from_environ({"SPARK_REMOTE": config.remote})
    assert "very-secret" not in f"{config!r} {settings!r}"


def test_nothing_said_is_this_machine_with_retries():
    config = SparkConfig()
    assert config.is_local
    assert config.effective_master == f"local[{cores()},4]"
    assert config.launch_environment("/py") == {
        "PYSPARK_PYTHON": "/py",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_only_this_machine_is_tied_to_loopback():
    local = SparkConfig(master="local[1]").classic_settings("/s", "-x")
    cluster = SparkConfig(master="spark://host:7077").classic_settings("/s", "-x")
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled"} & {*cluster}
    assert local["spark.sql.session.timeZone"] == cluster["spark.sql.session.timeZone"] == "UTC"


def test_settings_of_the_user_win_and_options_of_java_are_joined():
    config = SparkConfig(
        master="local[1]",
        settings={"spark.driver.memory": "3g", "spark.driver.defaultJavaOptions": "-Dmine=1"},
    )
    settings = config.classic_settings("/s", "-Dours=1")
    assert settings["spark.driver.memory"] == "3g"
    assert settings["spark.driver.defaultJavaOptions"] == "-Dours=1 -Dmine=1"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SparkConfig(python="/other"), "/ours"),
        (SparkConfig("spark://host:7077"), "/ours"),
        (SparkConfig("spark://host:7077", python="/theirs"), "/theirs"),
        (
            SparkConfig(
                "spark://host:7077", python="/a", settings={"spark.pyspark.python": "/theirs"}
            ),
            "/theirs",
        ),
    ],
)
def test_workers_on_this_machine_run_this_python(config, expected):
    assert config.worker_python("/ours") == expected
