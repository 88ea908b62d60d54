"""``omnigraph tag``: names for commits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Commands, family, form
from omnigraph.cli.targets import echo, opened

if TYPE_CHECKING:
    from omnigraph.commit.history import Tag


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "tag", "work with names for commits")
    parser = form(
        forms,
        "tag",
        "create",
        run_create,
        "name a commit; cleanup spares what a tag names",
        writes=True,
    )
    parser.add_argument("name", metavar="NAME", help="the tag")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--commit", metavar="ID", help="the commit to name")
    place.add_argument(
        "--branch", metavar="B", help="name its newest commit; that of main if not given"
    )
    parser.add_argument("--move", action="store_true", help="move a tag that is there already")
    form(forms, "tag", "list", run_list, "list the tags")
    parser = form(forms, "tag", "delete", run_delete, "delete a tag; its commit stays", writes=True)
    parser.add_argument("name", metavar="NAME", help="the tag")


def run_create(arguments: argparse.Namespace) -> int:
    """Name a commit."""
    from omnigraph.errors import AlreadyExists

    with opened(arguments, "rw") as (graph, target):
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
    told = {"uri": target.uri, **_told(tag)}
    terminal.show_either(arguments.json, told, f"tagged {tag.commit_id} as {tag.name}")
    return terminal.OK


def run_list(arguments: argparse.Namespace) -> int:
    """List the tags."""
    with opened(arguments, "r") as (graph, _):
        tags = graph.tags.list()
    if arguments.json:
        terminal.show_json({"tags": [_told(tag) for tag in tags]})
        return terminal.OK
    for tag in tags:
        actor = f" actor={tag.actor}" if tag.actor else ""
        terminal.show(f"{tag.name} {tag.commit_id}{actor}")
    return terminal.OK


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete a tag."""
    with opened(arguments, "rw") as (graph, target):
        echo(arguments, target, "tag delete")
        graph.tags.delete(arguments.name)
    told = {"uri": target.uri, "name": arguments.name, "actor_id": target.actor}
    terminal.show_either(arguments.json, told, f"deleted tag {arguments.name}")
    return terminal.OK


def _told(tag: Tag) -> dict[str, Any]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "created_at": tag.created_at,
        "actor_id": tag.actor,
    }
