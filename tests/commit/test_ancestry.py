"""What two commits have in common, from the rows of commits alone."""

from omnigraph.commit.ancestry import CommitGraph, MergeLineage
from omnigraph.commit.metadata import MERGE
from omnigraph.commit.rows import CommitRow


def commit(name, version, parent=None, branch=None, merged=None, lines=None):
    lineage = MergeLineage(next(iter(lines)), lines).to_json() if lines else {}
    extra = {MERGE: lineage} if lines else {}
    return CommitRow(name, version, branch, version, parent, merged, None, extra)


MAIN = [commit("r", 1), commit("s", 2, "r"), commit("t", 3, "s")]


def test_a_merge_of_a_deleted_branch_leads_to_what_that_branch_had_of_main():
    work = commit("w", 2, "r", "work", merged="gone", lines={"first": 5, "r": 2})
    graph = CommitGraph([*MAIN, work])
    assert graph.common(["w"], ["t"]).commits == ["s"]
    assert graph.merge_bases(["w", "t"]) == {"s"}


def test_two_merges_of_a_deleted_branch_share_the_earlier_commit_of_it():
    one = commit("a", 4, "t", "one", merged="g1", lines={"first": 5})
    other = commit("b", 4, "t", "other", merged="g2", lines={"first": 7})
    shared = CommitGraph([*MAIN, one, other]).common(["a"], ["b"])
    assert (shared.commits, shared.lost) == (["t"], {"first@5"})


def test_an_unreadable_commit_is_lost_and_its_parent_counts():
    rows = [*MAIN, commit("a", 4, "t", "one"), commit("b", 4, "t", "other")]
    shared = CommitGraph(rows, lambda name: name != "t").common(["a"], ["b"])
    assert (shared.commits, shared.lost) == (["s"], {"t"})


def test_a_commit_that_the_other_side_has_is_the_base():
    assert CommitGraph(MAIN).common(["s"], ["t"]).commits == ["s"]
