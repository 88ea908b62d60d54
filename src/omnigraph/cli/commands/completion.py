"""``omnigraph completion``: what Tab needs in bash, zsh and fish.

The scripts know nothing: they hand the line to this command, which answers from the parsers
that read command lines. So there is one list of commands and options, and it is always that of
the program which is installed.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph.cli.guard import check_flags
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import (
    VALUE_FLAGS,
    Capability,
    Commands,
    command,
    fill_global_flags,
    subcommands_of,
)
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.escaping import has_controls

WORDS = "words"
FILES = "files"

SCRIPTS = {
    "bash": r"""# Completion of omnigraph for bash: source <(omnigraph completion bash)
_omnigraph() {
    local line="${COMP_LINE:0:COMP_POINT}" answer
    COMPREPLY=()
    mapfile -t answer < <("${COMP_WORDS[0]}" completion bash --line "$line" 2>/dev/null)
    if [[ "${answer[0]}" == files ]]; then
        compopt -o default 2>/dev/null
    fi
    COMPREPLY=("${answer[@]:1}")
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _omnigraph omnigraph
""",
    "zsh": r"""#compdef omnigraph
# Completion of omnigraph for zsh: source <(omnigraph completion zsh), or a file _omnigraph
# in a directory of $fpath.
_omnigraph() {
    local line each
    local -a answer found shown
    line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    answer=("${(@f)$("${words[1]}" completion zsh --line "$line" 2>/dev/null)}")
    if [[ "${answer[1]}" == files ]]; then
        [[ "$PREFIX" == --*=* ]] && compset -P '*='
        _files
    fi
    for each in "${(@)answer[2,-1]}"; do
        found+=("${each%%$'\t'*}")
        shown+=("${each/$'\t'/  -- }")
    done
    if (( ${#found} )); then
        compadd -l -d shown -a found
    fi
}
if [[ "${funcstack[1]}" == _omnigraph ]]; then
    _omnigraph "$@"
else
    compdef _omnigraph omnigraph
fi
""",
    "fish": r"""# Completion of omnigraph for fish: omnigraph completion fish | source
function __omnigraph_answer
    set -l line (commandline -cp | string collect)
    set -l answer (omnigraph completion fish --line "$line" 2>/dev/null)
    if test "$answer[1]" = files
        set -l token (commandline -ct | string collect)
        set -l option (string match -r -- '^--[^=]*=' $token)
        set -l path (string replace -r -- '^--[^=]*=' '' $token)
        __fish_complete_path $path | string replace -r -- '^' "$option"
    end
    set -e answer[1]
    if test (count $answer) -gt 0
        printf '%s\n' $answer
    end
end
complete -c omnigraph -f -a '(__omnigraph_answer)'
""",
}

# What means something to bash: in a bare word, and between double quotes.
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")
_SPECIAL_QUOTED = re.compile(r'["\\$`]')

_FILE_NAMES = ("FILE", "DIR", "PATH", "URI", "PLACE", "BACKUP", "DEST", "MANIFEST")
_BRANCH_NAMES = ("B", "BRANCH", "BASE", "BEFORE", "AFTER")
_BRANCH_WORDS = {"branch delete": "name", "branch merge": "source"}
"""The forms whose positional word is a branch, under a name of its own."""
_CONFIGURED = {"profile": "profiles", "server": "servers", "cluster": "clusters"}
_CONFIGURED_WORDS = {"alias": "aliases", "profile show": "profiles", "login": "servers"}
"""What the configuration names: by the option, and by the form whose first word it is."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "completion",
        run,
        Capability.LOCAL,
        "print the script that makes Tab complete commands in a shell",
        description="Prints a script for a shell, which then completes commands, options, file "
        "names and branches. For bash: source <(omnigraph completion bash)",
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="which shell")
    parser.add_argument(
        "--line",
        metavar="TEXT",
        help="instead, answer what may stand at the end of this command line, as scripts ask",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script, or answer it."""
    if arguments.line is None:
        terminal.show_raw(SCRIPTS[arguments.shell])
        return terminal.OK
    answer = complete(arguments.line)
    terminal.show(answer.kind)
    for word, text in answer.found:
        if arguments.shell == "bash":
            terminal.show(bash_word(arguments.line, word))
        else:
            terminal.show_fields(*filter(None, (word, text)))
    return terminal.OK


def bash_word(line: str, word: str) -> str:
    r"""What bash is to put in for a word at the end of a line: quoted, and only its last part.

    Zsh and fish quote by themselves. Bash takes ``=``, ``:`` and an open quote for the end of a
    word, and replaces only what comes after it.

    >>> print(bash_word("omnigraph query --branch=a", "--branch=a b"))
    a\ b
    """
    quote, start = _end_of(line)
    rest = word[start:]
    if quote == "'":
        return rest.replace("'", "'\\''")
    special = _SPECIAL_QUOTED if quote else _SPECIAL
    return special.sub(r"\\\g<0>", rest)


def _end_of(line: str) -> tuple[str, int]:
    """The quote that is open at the end of a line, and how much of the last word bash leaves."""
    quote, length, start = "", 0, 0
    signs = iter(line)
    for sign in signs:
        if sign == quote:
            quote = ""
        elif not quote and sign in "'\"":
            quote, start = sign, length
        elif not quote and sign.isspace():
            length = start = 0
        else:
            if sign == "\\" and quote != "'":
                next(signs, "")
            elif not quote and sign in "=:":
                start = length + 1
            length += 1
    return quote, start


@dataclass(frozen=True, slots=True)
class Answer:
    """What may stand at a place: words with a text about each, and perhaps the name of a file."""

    current: str
    found: Sequence[tuple[str, str]] = ()
    kind: str = WORDS


@dataclass(slots=True)
class _Place:
    """Where a command line has got to."""

    parser: argparse.ArgumentParser
    positional: int = 0
    given: set[str] = field(default_factory=set)
    """The destinations of the options that were given."""
    values: dict[str, str] = field(default_factory=dict)
    awaited: argparse.Action | None = None
    is_lost: bool = False
    only_words: bool = False


def complete(line: str) -> Answer:
    """What may stand at the end of a command line.

    >>> [word for word, _ in complete("omnigraph bra").found]
    ['branch']
    """
    words = split_line(line)[1:]
    if not words:
        return Answer("")
    *before, current = words
    from omnigraph.cli.parser import build_parser

    place = _walk(build_parser(before), before)
    if place.is_lost:
        return Answer(current)
    answer = _at(place, current)
    # A name with control characters cannot be typed, and would break the line.
    found = [
        each for each in answer.found if each[0].startswith(current) and not has_controls(each[0])
    ]
    return Answer(current, found, answer.kind)


def split_line(line: str) -> list[str]:
    """The words of a line, as a shell takes them; the last one is where the cursor is.

    >>> split_line("omnigraph load 'my data"), split_line("omnigraph ")
    (['omnigraph', 'load', 'my data'], ['omnigraph', ''])
    """
    for ending in ("", "'", '"', "\\"):
        try:
            # What follows the last word shows whether it has ended.
            words = shlex.split(f"{line}{ending}|")
        except ValueError:
            continue
        words[-1] = words[-1].removesuffix("|")
        return words
    return line.split(" ")


def _walk(parser: argparse.ArgumentParser, words: Sequence[str]) -> _Place:
    place = _Place(parser)
    for word in words:
        if place.awaited is not None:
            place.values[place.awaited.dest] = word
            place.awaited = None
        elif word == "--" and not place.only_words:
            place.only_words = True
        elif word.startswith("-") and word != "-" and not place.only_words:
            _take_option(place, word)
        else:
            _take_word(place, word)
    return place


def _take_option(place: _Place, word: str) -> None:
    name, sign, value = word.partition("=")
    action = place.parser._option_string_actions.get(name)
    if action is None:
        return
    place.given.add(action.dest)
    if sign:
        place.values[action.dest] = value
    elif action.nargs != 0:
        place.awaited = action


def _take_word(place: _Place, word: str) -> None:
    commands = _commands(place.parser)
    if commands is not None:
        child = commands.choices.get(word)
        if child is None:
            place.is_lost = True
        else:
            place.parser, place.positional = child, 0
        return
    form = subcommands_of(place.parser).get(word)
    if form is not None and not place.given and not place.positional:
        place.parser = form[0]
        return
    positionals = _positionals(place.parser)
    if place.positional < len(positionals):
        action = positionals[place.positional]
        place.values[action.dest] = word
        # One that takes many words takes all that follow.
        place.positional += action.nargs not in ("*", "+")


def _commands(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action
    return None


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _at(place: _Place, current: str) -> Answer:
    if place.awaited is not None:
        return _values(place, place.awaited, current)
    if current.startswith("-") and not place.only_words:
        name, sign, value = current.partition("=")
        action = place.parser._option_string_actions.get(name)
        if sign and action is not None and action.nargs != 0:
            inner = _values(place, action, value)
            found = [(f"{name}={word}", text) for word, text in inner.found]
            return Answer(current, found, inner.kind)
        return Answer(current, _options(place))
    commands = _commands(place.parser)
    if commands is not None:
        # Only commands that help shows are offered.
        shown = [(each.dest, each.help or "") for each in commands._choices_actions]
        return Answer(current, shown)
    positionals = _positionals(place.parser)
    if place.positional < len(positionals):
        answer = _values(place, positionals[place.positional], current)
        if place.given or place.positional:
            return answer
        forms = [(name, text) for name, (_, text) in subcommands_of(place.parser).items()]
        return Answer(current, [*forms, *answer.found], answer.kind)
    return Answer(current, _options(place))


def _options(place: _Place) -> list[tuple[str, str]]:
    """The options that can still be given, the long spelling of each."""
    excluded = set()
    for group in place.parser._mutually_exclusive_groups:
        dests = {action.dest for action in group._group_actions}
        if dests & place.given:
            excluded |= dests
    found = []
    for action in place.parser._actions:
        is_repeated = isinstance(action, argparse._AppendAction)
        is_over = action.dest in place.given or action.dest in excluded
        if not action.option_strings or action.help == argparse.SUPPRESS:
            continue
        if (is_repeated or not is_over) and _is_taken(place.parser, action.dest):
            found.append((max(action.option_strings, key=len), (action.help or "").strip()))
    return found


def _is_taken(parser: argparse.ArgumentParser, dest: str) -> bool:
    """Whether a command has a use for a global flag; its parser takes all of them."""
    if f"--{dest}" not in VALUE_FLAGS or parser.get_default("capability") is None:
        return True
    arguments = argparse.Namespace(**parser._defaults, **{dest: "given"})
    fill_global_flags(arguments)
    try:
        check_flags(arguments)
    except InputError:
        return False
    return True


def _values(place: _Place, action: argparse.Action, current: str) -> Answer:
    if action.choices is not None:
        return Answer(current, [(str(choice), "") for choice in action.choices])
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    form = place.parser.prog.removeprefix("omnigraph ")
    if metavar in _BRANCH_NAMES or _BRANCH_WORDS.get(form) == action.dest:
        return Answer(current, [(name, "branch") for name in _branches(place.values)])
    names = _CONFIGURED.get(action.dest) or (
        _CONFIGURED_WORDS.get(form) if action.dest == "name" else None
    )
    found = [(name, names or "") for name in _configured(names)]
    is_file = any(part in _FILE_NAMES for part in metavar.replace("=", "|").split("|"))
    return Answer(current, found, FILES if is_file else WORDS)


def _configured(names: str | None) -> Iterable[str]:
    """Names of the operator's configuration, of one kind."""
    if names is None:
        return ()
    from omnigraph.cli.operator_config import load_operator

    try:
        found: Mapping[str, object] = getattr(load_operator(), names)
    except OmniGraphError:
        return ()
    return tuple(found)


def _branches(values: Mapping[str, str]) -> Iterable[str]:
    """The branches of the graph that a line addresses, where that takes no network."""
    from omnigraph.cli.operator_config import load_operator
    from omnigraph.cli.scopes import Server, is_local, storage_of

    arguments = argparse.Namespace(
        uri=values.get("uri"),
        store=values.get("store"),
        profile=values.get("profile"),
        capability=Capability.ANY,
        in_cluster=False,
        label="completion",
    )
    fill_global_flags(arguments)
    try:
        address = storage_of(arguments, load_operator())
        if isinstance(address, Server) or not is_local(address):
            return ()
        from omnigraph.api.graph import Graph

        with Graph.open(address, "r") as graph:
            return graph.branches.list()
    except OmniGraphError:
        # Nobody who presses Tab wants to read why there is nothing to offer.
        return ()
