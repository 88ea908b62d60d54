"""The Spark options of a user, and the Spark settings derived from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from omnigraph.errors import InputError
from omnigraph.records import dataclass

AUTO, BUILD, OFF = "auto", "build", "off"
ARCHIVE_USES = (AUTO, BUILD, OFF)

SQL_SETTINGS: Mapping[str, str] = {
    # Timestamps are instants; the time zone of a machine must not change them.
    "spark.sql.session.timeZone": "UTC",
    # Otherwise columns from Python are matched by position, ignoring names and types.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Cached rows with NaN would be dropped.
    "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
}
"""The settings of every session of ours, wherever it runs."""

_LOOPBACK = "127.0.0.1"
_OWN_FIELDS = {"spark.master": "master", "spark.remote": "remote"}


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Where Spark runs and how it is set up.

    >>> SparkConfig(master="local[2,4]").is_local
    True
    >>> SparkConfig(master="spark://host:7077").is_local
    False
    """

    master: str = ""
    """A master such as ``spark://host:7077``; empty means this machine, with all its cores."""
    remote: str = field(default="", repr=False)
    """A Spark Connect server such as ``sc://host:15002``; it may contain a token."""
    memory: str = "2g"
    """The memory of the driver."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark settings by name; they override ours."""
    python: str = ""
    """The Python of the workers of a cluster; empty means the path of this one."""
    java_home: str = ""
    cache_dir: str = ""
    """The directory of the class-data archive; empty means none."""
    archive: str = AUTO
    """``auto``, ``build`` (in this session, if there is none) or ``off``."""

    def __post_init__(self) -> None:
        if self.master and self.remote:
            raise InputError(
                "Spark has either a master or a Spark Connect server, not both",
                hint="give one of master and remote; SPARK_REMOTE in the environment is a remote",
            )
        if self.remote and not self.remote.startswith("sc://"):
            raise InputError(
                "the address of a Spark Connect server starts with sc://",
                hint="such as sc://host:15002; leave it empty to run Spark on this machine",
            )
        if self.archive not in ARCHIVE_USES:
            raise InputError(
                f"the class-data archive is {', '.join(ARCHIVE_USES)}, not '{self.archive}'"
            )
        for name, value in self.settings.items():
            if not isinstance(name, str) or not name.startswith("spark."):
                raise InputError(f"invalid setting '{name}'", hint="settings start with 'spark.'")
            if not isinstance(value, str):
                raise InputError(f"the value of {name} must be text, not {type(value).__name__}")
            if name in _OWN_FIELDS:
                raise InputError(f"{name} is given as {_OWN_FIELDS[name]}, not as a setting")

    @staticmethod
    def from_options(options: Mapping[str, str]) -> SparkConfig:
        """The configuration from the environment, see ``Settings.spark_options``.

        >>> SparkConfig.from_options({"master": "local[1]", "remote": "sc://host"}).remote
        ''
        """
        plain = SparkConfig()
        master = options.get("master", "")
        return SparkConfig(
            master=master,
            # A master set for OmniGraph overrides the general SPARK_REMOTE.
            remote="" if master else options.get("remote", ""),
            memory=options.get("memory") or plain.memory,
            python=options.get("python", ""),
            java_home=options.get("java_home", ""),
            cache_dir=options.get("cache_dir", ""),
            archive=options.get("archive") or plain.archive,
        )

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine."""
        return not self.remote and (not self.master or self.master.startswith("local"))

    @property
    def effective_master(self) -> str:
        # The second number is the attempts per task; without it local mode never retries.
        return self.master or f"local[{cores()},4]"

    def classic_settings(self, scratch: str, java_options: str) -> dict[str, str]:
        """The settings of a session whose driver is this process."""
        settings = {
            "spark.app.name": "omnigraph",
            "spark.master": self.effective_master,
            "spark.driver.memory": self.memory,
            "spark.ui.showConsoleProgress": "false",
            # Otherwise Spark reports a finished task only with the next event.
            "spark.ui.liveUpdate.period": "0",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            **SQL_SETTINGS,
        }
        if self.is_local:
            settings |= {
                "spark.ui.enabled": "false",
                "spark.driver.host": _LOOPBACK,
                "spark.driver.bindAddress": _LOOPBACK,
                "spark.local.dir": f"{scratch}/local",
                "spark.sql.shuffle.partitions": str(max(2 * cores(), 4)),
            }
        settings |= self.settings
        options = "spark.driver.defaultJavaOptions"
        return settings | {options: f"{java_options} {settings.get(options, '')}".strip()}

    def session_settings(self) -> dict[str, str]:
        """The settings of a session on another owner's driver."""
        return {**SQL_SETTINGS, **self.settings}

    def launch_environment(self, executable: str) -> dict[str, str]:
        """The environment of the driver's Java."""
        local = {"SPARK_LOCAL_IP": _LOOPBACK} if self.is_local else {}
        return {"PYSPARK_PYTHON": self.worker_python(executable), **local}

    def worker_python(self, executable: str) -> str:
        """The Python of the workers; on this machine always ours, which has the package."""
        if self.is_local:
            return executable
        return self.settings.get("spark.pyspark.python") or self.python or executable


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
