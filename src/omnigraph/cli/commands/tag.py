"""``omnigraph tag``: names for commits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Commands, family
from omnigraph.cli.targets import echo, open_graph

if TYPE_CHECKING:
    from omnigraph.commit.history import Tag


def add(commands: Commands) -> None:
    tag = family(commands, "tag", "name commits")
    parser = tag.add(
        "create", run_create, "tag a commit; cleanup keeps tagged commits", writes=True
    )
    parser.add_argument("name", metavar="NAME", help="name of the tag")
    commit = parser.add_mutually_exclusive_group()
    commit.add_argument("--commit", metavar="ID", help="commit to tag")
    commit.add_argument("--branch", metavar="B", help="tag the head of B; default: main")
    parser.add_argument("--move", action="store_true", help="move an existing tag")
    tag.add("list", run_list, "list tags")
    parser = tag.add("delete", run_delete, "delete a tag; its commit stays", writes=True)
    parser.add_argument("name", metavar="NAME", help="tag to delete")


def run_create(arguments: argparse.Namespace) -> int:
    from omnigraph.errors import AlreadyExists

    with open_graph(arguments, "rw") as (graph, target):
        echo(arguments, target, "tag create")
        try:
            tag = graph.tags.create(
                arguments.name,
                arguments.commit,
                branch="main" if arguments.branch is None else arguments.branch,
                move=arguments.move,
            )
        except AlreadyExists as error:
            raise AlreadyExists(
                error.message, hint="pass --move to move it", details=error.details
            ) from error
    document = {"uri": target.uri, **_tag_json(tag)}
    return show_report(arguments, document, f"tagged {tag.commit_id} as {tag.name}")


def run_list(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        tags = graph.tags.list()
    lines = (
        f"{tag.name} {tag.commit_id}{f' actor={tag.actor}' if tag.actor else ''}" for tag in tags
    )
    return show_report(arguments, {"tags": [_tag_json(tag) for tag in tags]}, lines)


def run_delete(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "rw") as (graph, target):
        echo(arguments, target, "tag delete")
        graph.tags.delete(arguments.name)
    document = {"uri": target.uri, "name": arguments.name, "actor_id": target.actor}
    return show_report(arguments, document, f"deleted tag {arguments.name}")


def _tag_json(tag: Tag) -> dict[str, Any]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "created_at": tag.created_at,
        "actor_id": tag.actor,
    }
