"""pandas is loaded when somebody needs it, and pyarrow then does what it does without OmniGraph.

Each test spawns processes: what pyarrow finds of pandas is decided once in a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph

pytestmark = pytest.mark.rotates(6)

pytest.importorskip("pandas")

OURS = "omnigraph.storage.tables.datasets"

CONVERSIONS = Path(__file__).with_name("pandas_conversions.py")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    """What pyarrow answers in a process without OmniGraph."""
    return json.loads(run(str(CONVERSIONS)))


@pytest.mark.parametrize("before", [[OURS], ["pandas", OURS], [OURS, "pandas"], ["lance", OURS]])
def test_pyarrow_answers_as_it_does_without_omnigraph(plain, before):
    assert json.loads(run(str(CONVERSIONS), *before)) == plain
    assert not plain["a table"].startswith("builtins.ImportError")


def test_importing_lance_through_omnigraph_loads_no_pandas():
    assert run("-c", f"import {OURS}, lance, sys; print('pandas' in sys.modules)") == "False\n"


def test_threads_that_import_pandas_meanwhile_get_the_real_one():
    """One imports pandas, one a class of it, while two load Lance; each sees the real classes.

    None imports a module inside pandas meanwhile: that alone fails now and then, without Lance.
    """
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
import numpy, pyarrow
seen = []
def whole():
    import pandas as pd
    seen.append(pd.DataFrame({"a": [1]}))
def parts():
    from pandas import Series
    seen.append(Series([1]).to_frame("a"))
def lance():
    import omnigraph.storage.tables.datasets
threads = [threading.Thread(target=each) for each in (lance, whole, parts, lance)]
for each in threads: each.start()
for each in threads: each.join()
import pandas
assert [type(each) is pandas.DataFrame for each in seen] == [True, True], seen
assert type(sys.modules["pandas"]).__name__ == "module"
print([pyarrow.table(each).to_pylist() for each in seen])
"""
    for _ in range(3):
        assert run("-c", code) == "[[{'a': 1}], [{'a': 1}]]\n"


def test_a_stand_in_forwards_everything_but_its_list_to_pandas():
    code = """
import sys
from omnigraph.storage.tables.deferred_pandas import _StandInModule
stand_in = sys.modules["pandas"] = _StandInModule("pandas", "1.2.3")
assert isinstance(5, stand_in.DataFrame) is False and stand_in.__version__ == "1.2.3"
late = stand_in.DataFrame
assert stand_in.NaT is sys.modules["pandas"].NaT and sys.modules["pandas"] is not stand_in
import pandas
assert isinstance(pandas.DataFrame(), late) and issubclass(pandas.DataFrame, late)
assert type(late({"a": [1]})) is pandas.DataFrame and late.from_dict({}).empty
stand_in.close()
assert stand_in.DataFrame is pandas.DataFrame and stand_in.api is pandas.api
"""
    run("-c", code)


def test_a_thread_that_begins_to_import_pandas_first_keeps_its_module():
    code = """
import importlib.util, sys
import omnigraph.storage
spec = importlib.util.spec_from_file_location(
    "deferred", omnigraph.storage.__path__[0] + "/tables/deferred_pandas.py")
deferred = importlib.util.module_from_spec(spec)
spec.loader.exec_module(deferred)
real = deferred.import_module
def while_another_thread_imports_pandas(name):
    import pandas
    first.append(pandas)
    return real(name)
first = []
deferred.import_module = while_another_thread_imports_pandas
deferred.defer_pandas()
import pandas, pyarrow
assert pandas is first[0]
assert pyarrow.table(pandas.DataFrame({"a": [1]})).to_pylist() == [{"a": 1}]
assert pyarrow.lib._pandas_api.is_data_frame(pandas.DataFrame())
"""
    run("-c", code)


def test_threads_that_ask_a_stand_in_at_once_load_pandas_once():
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from omnigraph.storage.tables.deferred_pandas import _StandInModule
stand_in = sys.modules["pandas"] = _StandInModule("pandas", "1.2.3")
stand_in.close()
seen, failed, start = [], [], threading.Barrier(8)
def ask():
    start.wait()
    try:
        seen.append(stand_in.DataFrame)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
import pandas
assert not failed, failed
assert all(each is pandas.DataFrame for each in seen) and len(seen) == 8
"""
    run("-c", code)


@pytest.fixture
def uri(tmp_path) -> str:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        people = [{"type": "Person", "data": {"name": f"p{i}", "at": AT}} for i in range(4)]
        edges = [{"edge": "Knows", "from": f"p{i}", "to": f"p{i + 1}"} for i in range(3)]
        graph.load([*people, *edges])
        return graph.uri


AT = "2024-05-06T07:08:09Z"
SCHEMA = """
node Person { name: String @key  at: DateTime  age: I32? }
edge Knows: Person -> Person
"""
QUERIES = """
import sys
from omnigraph import Graph
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.at } }"
HOPS = '''query q($n: String) {
  match { $p: Person { name: $n }  $p knows $f  $f knows $h } return { $h.name, $h.age } }'''
with Graph.open(sys.argv[1], "r") as graph:
    assert len(graph.query(LOOKUP, params={"n": "p1"}).rows()) == 1
    assert len(graph.query(HOPS, params={"n": "p1"}).rows()) == 1
    assert "pandas" not in sys.modules
    frame = graph.query(LOOKUP, params={"n": "p1"}).to_pandas()
    assert type(frame) is sys.modules["pandas"].DataFrame and len(frame) == 1
"""


def test_a_query_needs_no_pandas_and_a_frame_loads_it(uri):
    run("-c", QUERIES, uri)


def test_a_three_way_merge_needs_no_pandas(uri):
    """Neither do the writes before it."""
    code = """
import sys
from omnigraph import Graph
ADD = "query add($n: String, $at: DateTime) { insert Person { name: $n, at: $at } }"
SET = "query set($n: String) { update Person set { age: 3 } where name = $n }"
with Graph.open(sys.argv[1]) as graph:
    graph.branches.create("b")
    for branch, name in (("main", "x"), ("b", "y")):
        graph.mutate(ADD, params={"n": name, "at": "2024-05-06T07:08:09Z"}, branch=branch)
    graph.mutate(SET, params={"n": "p1"}, branch="b")
    graph.mutate(SET, params={"n": "p2"})
    graph.merge("b")
    assert graph.snapshot().count("Person") == 6
    assert "pandas" not in sys.modules
"""
    run("-c", code, uri)


def test_a_frame_is_loaded_after_queries_without_pandas(uri):
    code = (
        "import sys\nfrom omnigraph import Graph\ngraph = Graph.open(sys.argv[1])\n"
        "graph.snapshot().count('Person')\nimport pandas as pd\n"
        f"frame = pd.DataFrame({{'name': ['new'], 'at': pd.to_datetime(['{AT}'])}})\n"
        "assert graph.load({'Person': frame}).affected_nodes == 1\n"
    )
    run("-c", code, uri)
