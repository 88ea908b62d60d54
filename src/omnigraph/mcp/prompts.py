"""Prompts for the usual work with a graph."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.errors import InputError
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """A prompt with arguments, which are inserted into its text."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, str]
    """The required arguments with their descriptions."""
    text: str

    def filled(self, given: Mapping[str, str]) -> str:
        """The text with the arguments inserted; raises ``InputError`` if one is missing."""
        missing = [name for name in self.arguments if not given.get(name)]
        if missing:
            raise InputError(f"prompt `{self.name}` needs {', '.join(missing)}")
        # Not ``format``: an argument may contain braces.
        text = self.text
        for name in self.arguments:
            text = text.replace(f"<{name}>", given[name])
        return text


_EXPLORE = """\
Explore the graph to answer this question: <question>

1. Call `graph_schema` to learn the types, their properties and how edges connect them.
2. Prefer a stored query if one fits; their tools are described with what they answer.
3. Otherwise find starting points with `graph_search` or `graph_entity`, and follow edges with
   `graph_neighbours` or a query of your own (`graph_query`).
4. If a query is refused, read the diagnostics: they name the place and a correction.
5. Answer with the ids of the nodes that the answer rests on, and the commit you have read."""

_ENRICH = """\
Enrich the graph on a branch of its own. The task: <task>

1. Create a branch with `branch_create`, for example `<branch>`. Never write to `main`.
2. Read what is there (`graph_schema`, `graph_search`, `graph_entity`), so that nothing is added
   twice: a node is the same if its key is.
3. Write with stored mutations or `graph_mutate`, always with `branch` set to your branch, in small
   commits. Pass an `idempotency_key` for each, so that a repeated call writes once.
4. An integrity error says what is missing or wrong: insert nodes before the edges that join them.
5. Review your work with `branch_diff` and `branch_merge_preview`. Report the branch, what you
   added and changed, and what you were unsure about. Leave the merge to the reviewer."""

_REVIEW = """\
Review the branch `<branch>` before it is merged into `main`.

1. `branch_diff` shows every changed node and edge before and after. Read all pages.
2. `branch_merge_preview` shows whether it can be merged, and every conflict with both sides.
3. Check facts against the rest of the graph (`graph_entity`, `graph_neighbours`, `graph_query` on
   the branch and on `main`). `graph_blame` names the author of a row.
4. If something is wrong, say exactly which rows and why, and do not merge.
5. If all is right, merge with `branch_merge` and `delete_branch`, deciding each conflict by its id.
   Report the commit."""

PROMPTS: Mapping[str, AgentPrompt] = {
    prompt.name: prompt
    for prompt in (
        AgentPrompt(
            "explore_graph",
            "Explore the graph",
            "Answer a question from the graph, with the nodes it rests on.",
            {"question": "what you want to know"},
            _EXPLORE,
        ),
        AgentPrompt(
            "enrich_on_branch",
            "Enrich on a branch",
            "Add to the graph on a branch, for review.",
            {"task": "what to add or correct", "branch": "the name of the branch to create"},
            _ENRICH,
        ),
        AgentPrompt(
            "review_branch",
            "Review a branch",
            "Review the changes of a branch, and merge them if they are right.",
            {"branch": "the branch to review"},
            _REVIEW,
        ),
    )
}
