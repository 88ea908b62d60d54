"""A session on a Spark Connect server: the driver runs there, this process is a client."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from omnigraph.errors import InputError, SparkUnavailable
from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.failures import spark_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER_SECONDS = 15.0


def is_connect(session: SparkSession) -> bool:
    """Whether a session is one of Spark Connect; does not import its dependencies."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def connected(config: SparkConfig) -> SparkSession:
    """A new session on the server of a configuration."""
    server = _server(config.remote)
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise SparkUnavailable(
            "the packages that Spark Connect needs are not installed",
            hint="pip install 'omnigraph[connect]'",
        ) from error
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        channel = DefaultChannelBuilder(config.remote).toChannel()
    except PySparkException:
        raise _no_address(server) from None
    try:
        # A session retries for ten minutes if the server does not answer.
        grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        raise SparkUnavailable(
            f"no Spark Connect server answers at {server}",
            hint="check the address, that the server runs, and whether it requires use_ssl=true",
        ) from None
    finally:
        channel.close()
    with spark_call("connecting to Spark"):
        builder = SparkSession.builder.remote(config.remote).appName("omnigraph")
        return builder.config(map=dict(config.session_settings())).create()


def beside(given: Any) -> Any:
    """A new session on the server of a given one, with its settings."""
    # A session exists on the server only after its first use.
    given.conf.get("spark.sql.session.timeZone")
    return given.cloneSession()


def disconnect(session: Any) -> None:
    """End a session that we opened on a server, and nothing else of the server.

    The session's own ``stop`` would also end a server that the user runs in this process.
    """
    # A dead server would be retried for ten minutes.
    session.client.set_retry_policies([])
    with suppress(Exception):
        session.client.release_session()
    with suppress(Exception):
        session.client.close()


def _server(remote: str) -> str:
    """Host and port of an address, without a token."""
    try:
        parts = urlsplit(remote)
        return f"{parts.hostname}:{parts.port or 15002}"
    except ValueError:
        raise _no_address("the given one") from None


def _no_address(server: str) -> InputError:
    return InputError(
        f"invalid address of a Spark Connect server: {server}",
        hint="such as sc://host:15002/;token=…;use_ssl=true",
    )
