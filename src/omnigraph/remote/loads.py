"""Loads through a server: the data is read here and sent as lines of JSON, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from omnigraph.commit.receipts import LoadReceipt
from omnigraph.remote import documents, jobs, requests
from omnigraph.remote.calls import RemoteCalls
from omnigraph.remote.load_bodies import LoadBody, counted, started
from omnigraph.remote.unserved import refuse_arguments

if TYPE_CHECKING:
    import omnigraph
    from omnigraph.api.arguments import TypesByFile
    from omnigraph.progress import OnProgress


LARGEST = 32 << 20
"""Files up to this size are loaded by one request, larger ones by a job of the server, as is every
load on Spark."""


class ServedLoad(NamedTuple):
    """The receipt of a load, and the number of indexes that the server built after it."""

    receipt: LoadReceipt
    indexes_built: int


def load(
    calls: RemoteCalls,
    data: omnigraph.LoadData,
    mode: str,
    branch: str,
    from_branch: str | None,
    *,
    indexes: bool,
    format: str | None = None,
    types: TypesByFile | None = None,
    max_rejects: int | None = None,
    strict_properties: bool = False,
    dry_run: bool = False,
    engine: Any = "auto",
    spark: Any = None,
    if_commit: str | None = None,
    idempotency_key: str | None = None,
    on_progress: OnProgress | None = None,
    **refused: Any,
) -> ServedLoad:
    """Load data in one commit; with ``indexes`` the server builds the missing ones afterwards."""
    from omnigraph.write.load.job import LoadMode

    refuse_arguments("load", **refused)
    refuse_arguments("load", spark=spark)
    is_on_spark = engine == "spark"
    options = requests.load_options(
        dry_run, strict_properties, max_rejects, indexes=indexes, is_on_spark=is_on_spark
    )
    body = LoadBody(calls.catalog, format, types)
    size = body.total(data)
    pieces = counted(started(body.pieces(data)), size, on_progress)
    request = requests.load(
        pieces, LoadMode(mode).value, branch, from_branch, options, if_commit, idempotency_key
    )
    with body.naming(data):
        if size <= LARGEST and not is_on_spark:
            return calls.send(request, _served)
        result = jobs.run(calls, jobs.preferred(request), on_progress)
    with documents.decoding(calls.connection.base):
        return _served(result)


def _served(document: Any) -> ServedLoad:
    return ServedLoad(documents.load_receipt(document), documents.indexes_built(document))
