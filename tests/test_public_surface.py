"""What users may rely on: the names, the error tree, and a cheap import."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import omnigraph
from omnigraph import errors
from omnigraph.errors import OmniGraphError

HEAVY = {"lance", "numpy", "obstore", "pandas", "pyarrow", "pyspark"}


def test_all_is_pinned():
    assert omnigraph.__all__ == [
        "__version__",
        "Graph",
        "GraphSnapshot",
        "GraphBranches",
        "GraphTags",
        "GraphChanges",
        "GraphSchema",
        "GraphIndexes",
        "GraphEmbeddings",
        "GraphMaintenance",
        "restore",
        "clone",
        "backup_points",
        "prune_backup",
        "verify_graph",
        "Result",
        "Explanation",
        "Cancel",
        "Progress",
        "BlobInfo",
        "ReadOnlyDataset",
        "Receipt",
        "LoadReceipt",
        "LoadMode",
        "LoadData",
        "Rows",
        "TableCounts",
        "Durability",
        "Recovered",
        "Commit",
        "Tag",
        "MergeReport",
        "Resolve",
        "Diff",
        "ChangePage",
        "Baseline",
        "Blame",
        "Catalog",
        "MigrationPlan",
        "SchemaApplied",
        "IndexReport",
        "IndexState",
        "OptimizeReport",
        "CleanupReport",
        "MaintenancePolicy",
        "DoctorReport",
        "RepairReport",
        "VerifyReport",
        "BackupReport",
        "BackupPoint",
        "PruneReport",
        "CopyReport",
        "EmbeddingConfig",
        "EmbeddingReport",
        "EmbeddingStatus",
        "RateLimit",
        "Batching",
        "compile_schema",
        "compile_query",
        "Source",
        "Span",
        "Severity",
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
    assert omnigraph.__all__ == ["__version__", *omnigraph._MODULES]


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
    found = []
    ancestors: list[str] = []
    for line in drawing.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+) +(\w+)", line)
        if match is None:
            continue
        branches, name, code = match.groups()
        depth = len(branches) // 4
        ancestors[depth:] = [name]
        found.append((name, ancestors[depth - 1] if depth else None, code))
    return found


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
