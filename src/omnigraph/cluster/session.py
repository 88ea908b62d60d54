"""What every command begins with: a configuration, and the storage that it names."""

from __future__ import annotations

from pathlib import Path

from omnigraph.cluster.bundle import CONFIG, ConfigBundle
from omnigraph.cluster.config import ClusterConfig
from omnigraph.cluster.config_reader import read_header
from omnigraph.cluster.desired import DesiredState, read_desired
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.errors import OmniGraphError
from omnigraph.records import dataclass
from omnigraph.settings import Settings


@dataclass(frozen=True, slots=True)
class ClusterSession:
    """A command on a cluster: its files, its storage, and its problems so far."""

    bundle: ConfigBundle
    settings: Settings
    log: DiagnosticLog
    config: ClusterConfig
    storage: ClusterStorage
    desired: DesiredState | None = None

    @property
    def name(self) -> str:
        return self.bundle.name


def open_session(
    bundle: ConfigBundle, settings: Settings, root: str | None = None, *, header: bool = False
) -> tuple[ClusterSession | None, DiagnosticLog]:
    """Read a configuration; no session if it has errors.

    ``root`` replaces the storage that the configuration names. With ``header`` only that is read,
    and what is declared does not matter.
    """
    log = DiagnosticLog()
    desired = None
    if header:
        config = read_header(bundle, log)
    else:
        desired = read_desired(bundle, log)
        config = None if desired is None else desired.config
    if config is None or not log.ok:
        return None, log
    try:
        storage = ClusterStorage(root or storage_root(config, bundle), settings)
    except OmniGraphError as error:
        log.error("storage_root_invalid", "storage", f"{config.at('storage')}: {error.message}")
        return None, log
    return ClusterSession(bundle, settings, log, config, storage, desired), log


def storage_root(config: ClusterConfig, bundle: ConfigBundle) -> str:
    """The storage of a cluster: its directory unless the file names another.

    A relative path is relative to the directory of the file.
    """
    if config.storage is None:
        return bundle.name
    if "://" in config.storage:
        return config.storage
    return str(Path(bundle.name, config.storage))


def config_file(bundle: ConfigBundle) -> str:
    return str(Path(bundle.name, CONFIG))
