"""Merges in several processes at once, and beside writers: nothing lost, nothing half merged."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.concurrency.test_processes import PEOPLE, assert_recovered, chain

pytestmark = pytest.mark.rotates(3)

REFUSALS = {"version_mismatch", "conflict"}


def names(graph, branch="main"):
    return set(graph.snapshot(branch).read("Person")["name"].to_pylist())


def person(name):
    return {"Person": pa.table({"name": [name]})}


def assert_typed(reported):
    assert all("failed" not in item for item in reported), reported
    codes = {refusal["code"] for item in reported for refusal in item.get("refused", [])}
    assert codes <= REFUSALS


def test_two_processes_merge_different_branches_at_once(new_graph, processes):
    graph = new_graph(PEOPLE)
    graph.append(person("Ada"))
    for branch in ("one", "two"):
        graph.branches.create(branch)
        graph.append(person(branch), branch=branch)
        graph.mutate('query q() { delete Person where name = "Ada" }', branch=branch)
    reported = processes.run(*(("merge", {"branch": branch}) for branch in ("one", "two")))
    assert_typed(reported)
    assert names(graph) == {"one", "two"}
    merged = {commit.merged_parent for commit in graph.commits()} - {None}
    assert merged == {graph.snapshot(branch).commit_id for branch in ("one", "two")}
    assert len(chain(graph)) == 4
    assert_recovered(graph)


def test_a_merge_beside_a_writer_of_the_target_is_refused_or_complete(new_graph, processes):
    graph = new_graph(PEOPLE)
    graph.append(person("Ada"))
    graph.branches.create("work")
    graph.mutate('query q() { delete Person where name = "Ada" }', branch="work")
    for number in range(3):
        graph.append(person(f"w{number}"), branch="work")
    reported = processes.run(
        ("merge", {"branch": "work"}),
        ("append_to_branch", {"branch": "main", "name": "m", "times": 8}),
    )
    assert_typed(reported)
    assert names(graph) == {"w0", "w1", "w2", *reported[1]["names"]}
    assert graph.merge("work").outcome.value == "already_up_to_date"
    assert len(chain(graph)) == 3 + reported[1]["done"]
    assert_recovered(graph)


def test_four_writers_of_a_table_do_not_starve_a_merge(new_graph, processes):
    assert_merged_beside_writers(new_graph(PEOPLE), processes, ["work"], rows=200)


@pytest.mark.slow
def test_four_writers_of_a_table_do_not_starve_many_merges(new_graph, processes):
    assert_merged_beside_writers(
        new_graph(PEOPLE), processes, [f"work{n}" for n in range(6)], rows=20_000
    )


def assert_merged_beside_writers(graph, processes, branches, rows):
    """Each merge is done by its first call; the writers go on meanwhile."""
    graph.append(person("Ada"))
    merged = set()
    for branch in branches:
        graph.branches.create(branch)
        added = [f"{branch}-{n}" for n in range(rows)]
        graph.append({"Person": pa.table({"name": added})}, branch=branch)
        merged.update(added)
    reported = processes.run(
        ("merge_and_delete", {"branches": branches}),
        *(("append_while_branches", {"name": f"m{n}", "most": 100}) for n in range(4)),
    )
    assert reported[0] == {"done": len(branches)}
    assert all("refused" not in item and "failed" not in item for item in reported)
    assert all(item["done"] for item in reported)
    written = {name for item in reported[1:] for name in item["names"]}
    assert names(graph) == {"Ada"} | merged | written
    assert len(chain(graph)) == 2 + len(branches) + len(written)
    assert_recovered(graph)
    print([item["done"] for item in reported])


@pytest.mark.slow
def test_a_source_that_moves_is_merged_as_it_was_at_some_commit(new_graph, processes):
    graph = new_graph(PEOPLE)
    graph.branches.create("work")
    graph.append(person("first"), branch="work")
    reported = processes.run(
        ("merge", {"branch": "work", "times": 6}),
        ("append_to_branch", {"branch": "work", "name": "w", "times": 8}),
    )
    assert_typed(reported)
    commits = [commit.commit_id for commit in graph.commits("work")]
    merged = [commit.merged_parent for commit in graph.commits() if commit.merged_parent]
    assert merged
    # What was merged are commits of the branch, each further on than the one before.
    assert [item for item in commits if item in merged] == merged
    at_last = graph.snapshot("work").commit_id
    graph.merge("work")
    assert names(graph) == names(graph, "work") == {"first", *reported[1]["names"]}
    assert graph.snapshot("work").commit_id == at_last
    assert_recovered(graph)
