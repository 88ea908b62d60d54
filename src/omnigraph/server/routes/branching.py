"""The routes of branches and commits."""

from __future__ import annotations

from omnigraph.server.handlers import branching
from omnigraph.server.models import requests, responses
from omnigraph.server.routes.shape import Route, branch_bytes, of_graph

BRANCH_ROUTES: tuple[Route, ...] = (
    of_graph(
        "GET",
        "/branches",
        "listBranches",
        "List the branches",
        "branches",
        "read",
        branching.list_branches,
        response=responses.BranchListOutput,
    ),
    of_graph(
        "POST",
        "/branches",
        "createBranch",
        "Create a branch",
        "branches",
        "branch_create",
        branching.create_branch,
        authorize=branching.authorize_create,
        lane="write",
        request=requests.BranchCreateRequest,
        response=responses.BranchCreateOutput,
        size=branch_bytes,
    ),
    of_graph(
        "DELETE",
        "/branches/{branch}",
        "deleteBranch",
        "Delete a branch",
        "branches",
        "branch_delete",
        branching.delete_branch,
        authorize=branching.authorize_delete,
        lane="write",
        response=responses.BranchDeleteOutput,
        size=branch_bytes,
    ),
    of_graph(
        "POST",
        "/branches/merge",
        "mergeBranches",
        "Merge a branch into another",
        "branches",
        "branch_merge",
        branching.merge_branches,
        authorize=branching.authorize_merge,
        lane="write",
        request=requests.BranchMergeRequest,
        response=responses.BranchMergeOutput,
        size=branch_bytes,
    ),
    of_graph(
        "GET",
        "/commits",
        "listCommits",
        "List the commits of a branch, newest first",
        "commits",
        "read",
        branching.list_commits,
        authorize=branching.authorize_commits,
        query=requests.CommitFilter,
        response=responses.CommitListOutput,
    ),
    of_graph(
        "GET",
        "/commits/{commit_id}",
        "getCommit",
        "Show a commit",
        "commits",
        "read",
        branching.get_commit,
        authorize=branching.authorize_commit,
        response=responses.CommitOutput,
    ),
)
