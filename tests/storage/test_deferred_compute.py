"""``pyarrow.compute`` shows the same functions as without OmniGraph; they are made on demand.

Each test spawns processes: the module is imported once in a process.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.rotates(6)

DESCRIBE = """
import inspect, json, sys, warnings
warnings.simplefilter("ignore")
import pyarrow as pa, pyarrow.compute as pc
seen = {}
for name in dir(pc):
    value = getattr(pc, name)
    if callable(value) and not name.startswith("_"):
        try:
            signature = str(inspect.signature(value))
        except ValueError:
            signature = None
        seen[name] = [value.__name__, signature, value.__doc__]
assert pc.and_ is getattr(pc, "and") and pc.utf8_zfill is pc.utf8_zero_fill
assert inspect.getsource(pc).startswith("# Licensed")
assert pc.__spec__.loader is pc.__loader__
assert pc.function_registry is __import__("pyarrow._compute")._compute.function_registry
star = {}
exec("from pyarrow.compute import *", star)
for missing in ("hash_sum", "count_all", "no_such_function", "_no_such"):
    assert not hasattr(pc, missing), missing
print(json.dumps([seen, sorted(n for n in star if n != "__builtins__"),
    pc.utf8_zfill(pa.array(["7"]), 3).to_pylist(), pc.sum(pa.array([1, 2])).as_py()]))
"""
OURS = "import omnigraph.storage.tables\n"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_signatures_and_documentation_are_those_of_pyarrow():
    plain = json.loads(run(DESCRIBE))
    assert json.loads(run(OURS + DESCRIBE)) == plain
    assert len(plain[0]) > 250


def test_functions_are_made_when_they_are_used():
    code = """
import sys
import pyarrow.compute as pc
assert "add" not in vars(pc) and "pydoc" not in sys.modules
assert pc.add(1, 2).as_py() == 3 and vars(pc)["add"] is pc.add
assert "multiply" not in vars(pc)
"""
    run(OURS + code)


def test_an_unexpected_pyarrow_is_imported_as_usual():
    code = """
import omnigraph.storage, importlib.util
spec = importlib.util.spec_from_file_location(
    "deferred", omnigraph.storage.__path__[0] + "/tables/deferred_compute.py")
deferred = importlib.util.module_from_spec(spec)
spec.loader.exec_module(deferred)
deferred._TAKEN = "add"  # The alias of pyarrow.compute is then missing.
deferred.defer_compute_functions()
import pyarrow.compute as pc
assert "multiply" in vars(pc) and pc.add(1, 2).as_py() == 3 and not hasattr(pc, "__getattr__")
"""
    run(code)


def test_a_thread_that_imports_it_meanwhile_sees_all_functions():
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
import pyarrow
seen = []
def use():
    import pyarrow.compute as pc
    seen.append((pc.add(1, 2).as_py(), pc.utf8_zfill("7", 3).as_py()))
def ours():
    import omnigraph.storage.tables
threads = [threading.Thread(target=each) for each in (ours, use, use, ours)]
for each in threads: each.start()
for each in threads: each.join()
assert seen == [(3, "007")] * 2, seen
"""
    for _ in range(3):
        run(code)
