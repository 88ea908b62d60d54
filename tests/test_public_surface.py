"""What users may rely on: the names, the error tree, and a cheap import."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from enum import Enum

import pytest

import omnigraph
from omnigraph import errors
from omnigraph.errors import OmniGraphError
from omnigraph.lang.query.typed import TypedExpr
from omnigraph.plan.view import View
from tools import api_page

HEAVY = {"cedarpy", "lance", "numpy", "obstore", "pandas", "pyarrow", "pyspark"}


def test_all_is_pinned():
    assert omnigraph.__all__ == [
        "__version__",
        "Graph",
        "GraphSnapshot",
        "GraphBranches",
        "GraphTags",
        "GraphChanges",
        "GraphSchema",
        "GraphStoredQueries",
        "StoredQuery",
        "GraphBlobs",
        "GraphIndexes",
        "GraphEmbeddings",
        "GraphMaintenance",
        "connect",
        "RemoteGraph",
        "RemoteSnapshot",
        "RemoteBranches",
        "RemoteSchema",
        "RemoteTags",
        "RemoteChanges",
        "AsyncRemoteTags",
        "AsyncRemoteChanges",
        "RemoteQueries",
        "RemoteBlobs",
        "RemoteIndexes",
        "RemoteEmbeddings",
        "RemoteMaintenance",
        "RemoteJobs",
        "Job",
        "RemoteDeployments",
        "Deployment",
        "connect_async",
        "AsyncRemoteGraph",
        "AsyncRemoteSnapshot",
        "AsyncRemoteBranches",
        "AsyncRemoteSchema",
        "AsyncRemoteQueries",
        "AsyncRemoteBlobs",
        "AsyncRemoteIndexes",
        "AsyncRemoteEmbeddings",
        "AsyncRemoteMaintenance",
        "AsyncRemoteJobs",
        "AsyncRemoteDeployments",
        "GraphLike",
        "SnapshotLike",
        "BranchesLike",
        "SchemaLike",
        "QueriesLike",
        "TagsLike",
        "ChangesLike",
        "restore",
        "clone",
        "backup_points",
        "prune_backup",
        "verify_graph",
        "PreparedRead",
        "PreparedMutation",
        "Result",
        "ResultPage",
        "Explanation",
        "Cancel",
        "Progress",
        "OnProgress",
        "BlobInfo",
        "Neighbour",
        "ReadOnlyDataset",
        "Receipt",
        "LoadReceipt",
        "LoadMode",
        "LoadData",
        "Rows",
        "TableCounts",
        "Durability",
        "Engine",
        "Mode",
        "Recovered",
        "RecoveryKind",
        "TableOutcome",
        "Commit",
        "CommitGroup",
        "Tag",
        "MergeReport",
        "Outcome",
        "Conflicts",
        "RowConflict",
        "ConflictKind",
        "Resolve",
        "Diff",
        "Change",
        "Operation",
        "ChangePage",
        "ChangeBlock",
        "SchemaEvent",
        "Baseline",
        "Blame",
        "Catalog",
        "NodeType",
        "EdgeType",
        "Interface",
        "Property",
        "Annotation",
        "Embed",
        "PropType",
        "Scalar",
        "Cardinality",
        "MigrationPlan",
        "Step",
        "UnsupportedChange",
        "SchemaApplied",
        "Violation",
        "IndexReport",
        "IndexState",
        "IndexKind",
        "Coverage",
        "OptimizeReport",
        "TableStats",
        "CleanupReport",
        "TableCleanup",
        "ManifestCleanup",
        "Reclaimed",
        "Skipped",
        "MaintenancePolicy",
        "DoctorReport",
        "TableHealth",
        "ManifestHealth",
        "PendingWrite",
        "Holder",
        "CleanupEstimate",
        "Advice",
        "RepairReport",
        "TableRepair",
        "Action",
        "Drift",
        "VerifyReport",
        "VerifyProblem",
        "ProblemCode",
        "Weight",
        "BackupReport",
        "BackupPoint",
        "StoredFile",
        "PruneReport",
        "CopyReport",
        "EmbeddingConfig",
        "EmbeddingReport",
        "Refusal",
        "EmbeddingStatus",
        "RateLimit",
        "Batching",
        "Policy",
        "Decision",
        "RowVerdict",
        "PolicyFinding",
        "WriteGate",
        "Identity",
        "compile_schema",
        "compile_query",
        "Expect",
        "ReadPlan",
        "MutationPlan",
        "Source",
        "Span",
        "Severity",
        "Phase",
        "Diagnostic",
        "OmniGraphError",
        "LanguageError",
        "SchemaError",
        "QueryError",
        "PlanError",
        "InputError",
        "IntegrityError",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "VersionMismatch",
        "PreconditionFailed",
        "OutcomePending",
        "StorageError",
        "InternalError",
    ]


def test_every_public_name_is_there():
    missing = [name for name in omnigraph.__all__ if not hasattr(omnigraph, name)]
    assert missing == []
    assert set(omnigraph.__all__) <= set(dir(omnigraph))


def test_the_names_and_their_modules_agree():
    assert sorted(omnigraph.__all__) == sorted(["__version__", *omnigraph._MODULES])


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = omnigraph.nothing


@pytest.mark.parametrize("module", ["omnigraph", "omnigraph.cli", "omnigraph.cli.parser"])
def test_the_import_is_cheap(module):
    code = f"import sys, {module}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "omnigraph" in loaded
    assert HEAVY.intersection(loaded) == set()


# -- errors ---------------------------------------------------------------------------------------


def error_classes() -> list[type[OmniGraphError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, OmniGraphError)
    ]


def drawn_tree() -> list[tuple[str, str | None, str]]:
    """The drawing at the top of errors.py as (class, parent, code), top to bottom."""
    drawing = (errors.__doc__ or "").split("::\n", 1)[1]
    matches = []
    ancestors: list[str] = []
    for line in drawing.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+) +(\w+)", line)
        if match is None:
            continue
        branches, name, code = match.groups()
        depth = len(branches) // 4
        ancestors[depth:] = [name]
        matches.append((name, ancestors[depth - 1] if depth else None, code))
    return matches


def test_the_drawing_agrees_with_the_classes():
    classes = {
        cls.__name__: (None if cls is OmniGraphError else cls.__bases__[0].__name__, cls.code)
        for cls in error_classes()
    }
    assert {name: (parent, code) for name, parent, code in drawn_tree()} == classes
    assert len(drawn_tree()) == len(classes)


def test_every_error_code_is_unique_and_plain():
    codes = [cls.code for cls in error_classes()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_every_error_class_says_its_own_code():
    silent = [cls.__name__ for cls in error_classes() if "code" not in vars(cls)]
    assert silent == []


def test_an_error_is_plain_data():
    error = errors.VersionMismatch("table moved", hint="read again", details={"expected": 3})
    assert error.to_json() == {
        "code": "version_mismatch",
        "message": "table moved",
        "hint": "read again",
        "retryable": True,
        "details": {"expected": 3},
    }


# -- annotations ----------------------------------------------------------------------------------


def public_callables() -> list[tuple[str, Callable[..., object]]]:
    """Every public function, method and property of the surface; errors and enums aside."""
    actual: list[tuple[str, Callable[..., object]]] = []
    for name in omnigraph.__all__:
        value = getattr(omnigraph, name)
        if inspect.isfunction(value):
            actual.append((name, value))
        if not inspect.isclass(value) or issubclass(value, OmniGraphError | Enum):
            continue
        for member, raw in api_page.members(value).items():
            if member.startswith("_"):
                continue
            if isinstance(raw, classmethod | staticmethod):
                raw = raw.__func__
            if isinstance(raw, property):
                raw = raw.fget
            if inspect.isfunction(raw):
                actual.append((f"{name}.{member}", raw))
    return actual


def is_protocol(name: str) -> bool:
    """Whether it belongs to a class without an implementation, so that no example could run."""
    return getattr(getattr(omnigraph, name.partition(".")[0]), "_is_protocol", False)


CALLABLES = public_callables()


def test_the_walk_finds_the_surface():
    names = {name for name, _ in CALLABLES}
    assert {"Graph.query", "Graph.branches", "GraphSnapshot.diff", "Result.rows", "clone"} <= names


@pytest.mark.parametrize(("name", "function"), CALLABLES, ids=[name for name, _ in CALLABLES])
def test_every_annotation_resolves(name, function):
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    assert set(parameters) - {"self", "cls"} <= set(hints), name
    assert "return" in hints, name


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (name, function)
        for name, function in CALLABLES
        if (name.startswith(("Graph", "Result.")) and not is_protocol(name))
        or inspect.isfunction(getattr(omnigraph, name, 0))
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_call_has_a_text_and_an_example(name, function):
    text = function.__doc__ or ""
    assert text
    owner, _, member = name.partition(".")
    if not isinstance(inspect.getattr_static(getattr(omnigraph, owner), member, None), property):
        assert ">>> " in text, name


def classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes_in(argument)


def test_everything_that_is_returned_is_exported():
    """Errors aside, which are all in ``omnigraph.errors``, and the insides of a plan."""
    exported = {id(getattr(omnigraph, name)) for name in omnigraph.__all__}
    missing = {
        f"{name} -> {cls.__module__}.{cls.__qualname__}"
        for name, function in CALLABLES
        for cls in classes_in(typing.get_type_hints(function)["return"])
        if cls.__module__.split(".")[0] == "omnigraph"
        and not issubclass(cls, OmniGraphError | TypedExpr | View)
        and id(cls) not in exported
    }
    assert missing == set()


def test_the_types_of_arguments_and_attributes_are_exported():
    """Except the insides of a plan, of a migration step and of the canonical schema."""
    exported = {id(getattr(omnigraph, name)) for name in omnigraph.__all__}
    inside = ("omnigraph.commit.rows", "omnigraph.lang.", "omnigraph.plan.")
    hints = [
        (f"{name}({parameter})", hint)
        for name, function in CALLABLES
        for parameter, hint in typing.get_type_hints(function).items()
        if not name.endswith(".of")
    ]
    for name in omnigraph.__all__:
        cls = getattr(omnigraph, name)
        if dataclasses.is_dataclass(cls):
            named = typing.get_type_hints(cls)
            hints += [
                (f"{name}.{field.name}", named[field.name]) for field in dataclasses.fields(cls)
            ]
    missing = {
        f"{where}: {cls.__module__}.{cls.__qualname__}"
        for where, hint in hints
        for cls in classes_in(hint)
        if cls.__module__.startswith("omnigraph.")
        and not cls.__module__.startswith(inside)
        and not issubclass(cls, OmniGraphError)
        and id(cls) not in exported
    }
    assert missing == set()
