"""The storage options that the environment gives reach S3 through both libraries."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import StorageDenied, StorageError
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore


@pytest.fixture
def environ(s3, proxy, monkeypatch):
    """Variables that lead to the server through the proxy; the process itself has none."""
    for variable in Settings.variables():
        monkeypatch.delenv(variable, raising=False)
    return {
        "AWS_ACCESS_KEY_ID": s3.options["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3.options["aws_secret_access_key"],
        "AWS_REGION": s3.options["aws_region"],
        "AWS_ENDPOINT_URL_S3": proxy.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_FORCE_PATH_STYLE": "yes",
    }


def root_with(environ, s3_root):
    return parse_root(s3_root("g.omni").uri, Settings.from_environ(environ).storage_options())


def test_objects_and_tables_are_written_with_the_options_of_the_environment(
    environ, s3, s3_root, proxy
):
    root = root_with(environ, s3_root)
    ObjectStore(root).write("x", "1")
    lance.write_dataset(pa.table({"a": [1]}), root.path("t"), storage_options=dict(root.options))
    assert ObjectStore(s3_root("g.omni")).list("") == ["x"]
    assert lance.dataset(s3_root("g.omni").path("t"), storage_options=s3.options).version == 1
    assert {request.path.split("/")[1] for request in proxy.log} == {s3.bucket}


def test_both_libraries_take_every_option(environ, s3_root):
    root = root_with(environ | {"AWS_SESSION_TOKEN": "unknown"}, s3_root)
    with pytest.raises(StorageDenied):
        ObjectStore(root).write("x", "1")
    with pytest.raises(OSError, match=r"40\d|Denied"):
        lance.write_dataset(
            pa.table({"a": [1]}), root.path("t"), storage_options=dict(root.options)
        )


def test_without_the_switch_no_address_without_encryption_is_used(environ, s3_root, proxy):
    root = root_with(environ | {"AWS_ALLOW_HTTP": "0"}, s3_root)
    assert "allow_http" not in root.options
    with pytest.raises(StorageError, match="cannot write"):
        ObjectStore(root).write("x", "1")
    assert proxy.log == []
