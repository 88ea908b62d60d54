"""``omnigraph completion``: Tab completion in bash, zsh and fish.

The shell scripts contain no names: they pass the line to this command, which uses the
parsers that read command lines. So the completions are always those of the installed program.

``argcomplete`` does not replace this: it does not see ``backup prune`` beside ``backup URI``,
offers flags that the guard refuses, needs bash to complete file names in fish, and takes three
times as long for a Tab, because it builds every parser.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.cli.flags import VALUE_FLAGS, Capability, check_flags, fill_global_flags
from omnigraph.cli.output import terminal
from omnigraph.cli.parser_tree import (
    actions,
    defaults,
    exclusive_groups,
    extra_forms,
    is_repeatable,
    listed_commands,
    options,
    positionals,
    subparsers,
)
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.escaping import has_controls
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import OperatorConfig

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
    local line entry
    local -a answer matches shown
    line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    answer=("${(@f)$("${words[1]}" completion zsh --line "$line" 2>/dev/null)}")
    if [[ "${answer[1]}" == files ]]; then
        [[ "$PREFIX" == --*=* ]] && compset -P '*='
        _files
    fi
    for entry in "${(@)answer[2,-1]}"; do
        matches+=("${entry%%$'\t'*}")
        shown+=("${entry/$'\t'/  -- }")
    done
    if (( ${#matches} )); then
        compadd -l -d shown -a matches
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

# Special characters of bash: in a bare word, and between double quotes.
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")
_SPECIAL_QUOTED = re.compile(r'["\\$`]')

_FILE_NAMES = {"FILE", "DIR", "PATH", "URI", "BACKUP", "DEST", "MANIFEST"}
_KINDS = {
    "B": "branch",
    "BASE": "branch",
    "BEFORE": "state",
    "AFTER": "state",
    "tag": "tag",
    "profile": "profiles",
    "server": "servers",
    "cluster": "clusters",
}
"""The kind of name that an argument of this metavar or destination takes: of the graph, or of the
operator's configuration."""
_FORM_NAMES = {
    "branch delete": "branch",
    "branch merge": "branch",
    "tag delete": "tag",
    "alias": "aliases",
    "profile show": "profiles",
    "login": "servers",
    "logout": "servers",
}
"""The kind of name that the NAME or SOURCE of a command takes."""


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="shell to complete in")
    parser.add_argument(
        "--line",
        metavar="TEXT",
        help="print the completions of this command line instead; used by the scripts",
    )


def run_completion(arguments: argparse.Namespace) -> int:
    """Prints a script that completes commands, options, file names, branches and tags in a shell.
    For bash: source <(omnigraph completion bash)
    """
    if arguments.line is None:
        terminal.show_raw(SCRIPTS[arguments.shell])
        return terminal.OK
    completions = complete(arguments.line)
    terminal.show(completions.kind)
    for word, text in completions.words:
        if arguments.shell == "bash":
            terminal.show(bash_word(arguments.line, word))
        else:
            terminal.show_fields(*filter(None, (word, text)))
    return terminal.OK


def bash_word(line: str, word: str) -> str:
    r"""The text that bash inserts for a word: quoted, and only the part it replaces.

    Zsh and fish quote by themselves. Bash starts a new word after ``=``, ``:`` and an open quote,
    and replaces only what follows.

    >>> print(bash_word("omnigraph query --branch=a", "--branch=a b"))
    a\ b
    """
    quote, start = _last_word(line)
    rest = word[start:]
    if quote == "'":
        return rest.replace("'", "'\\''")
    special = _SPECIAL_QUOTED if quote else _SPECIAL
    return special.sub(r"\\\g<0>", rest)


def _last_word(line: str) -> tuple[str, int]:
    """The open quote at the end of a line, and the length of the last word that bash keeps."""
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
class Completions:
    """The completions at the end of a line: words with a help text, or file names too."""

    words: Sequence[tuple[str, str]] = ()
    kind: str = WORDS


@dataclass(slots=True)
class _LineState:
    """The parser, and the arguments before the cursor."""

    parser: argparse.ArgumentParser
    positional: int = 0
    given: set[str] = field(default_factory=set)
    """Destinations of the given options."""
    values: dict[str, str] = field(default_factory=dict)
    awaited: argparse.Action | None = None
    """The option whose value comes next."""
    is_invalid: bool = False
    is_after_dashes: bool = False


def complete(line: str) -> Completions:
    """The completions at the end of a command line.

    >>> [word for word, _ in complete("omnigraph bra").words]
    ['branch']
    """
    words = split_line(line)[1:]
    if not words:
        return Completions()
    *before, current = words
    from omnigraph.cli.parser import build_parser

    state = _read(build_parser(before), before)
    if state.is_invalid:
        return Completions()
    offered = _offers(state, current)
    # A name with control characters cannot be typed, and would break the line.
    matches = [
        (word, text)
        for word, text in offered.words
        if word.startswith(current) and not has_controls(word)
    ]
    return Completions(matches, offered.kind)


def split_line(line: str) -> list[str]:
    """Split a line as a shell does; the last word is the one at the cursor.

    >>> split_line("omnigraph load 'my data"), split_line("omnigraph ")
    (['omnigraph', 'load', 'my data'], ['omnigraph', ''])
    """
    for ending in ("", "'", '"', "\\"):
        try:
            # The added character shows whether the last word has ended.
            words = shlex.split(f"{line}{ending}|")
        except ValueError:
            continue
        words[-1] = words[-1].removesuffix("|")
        return words
    return line.split(" ")


def _read(parser: argparse.ArgumentParser, words: Sequence[str]) -> _LineState:
    state = _LineState(parser)
    for word in words:
        if state.awaited is not None:
            state.values[state.awaited.dest] = word
            state.awaited = None
        elif word == "--" and not state.is_after_dashes:
            state.is_after_dashes = True
        elif word.startswith("-") and word != "-" and not state.is_after_dashes:
            _read_option(state, word)
        else:
            _read_word(state, word)
    return state


def _read_option(state: _LineState, word: str) -> None:
    name, sign, value = word.partition("=")
    action = options(state.parser).get(name)
    if action is None:
        return
    state.given.add(action.dest)
    if sign:
        state.values[action.dest] = value
    elif action.nargs != 0:
        state.awaited = action


def _read_word(state: _LineState, word: str) -> None:
    commands = subparsers(state.parser)
    if commands:
        state.is_invalid = word not in commands
        state.parser = commands.get(word, state.parser)
        return
    form = extra_forms(state.parser).get(word)
    if form is not None and not state.given and not state.positional:
        state.parser = form[0]
        return
    expected = positionals(state.parser)
    if state.positional < len(expected):
        action = expected[state.positional]
        state.values[action.dest] = word
        # An argument that takes several words takes all that follow.
        state.positional += action.nargs not in ("*", "+")


def _offers(state: _LineState, current: str) -> Completions:
    if state.awaited is not None:
        return _values(state, state.awaited)
    if current.startswith("-") and not state.is_after_dashes:
        name, sign, _ = current.partition("=")
        action = options(state.parser).get(name)
        if sign and action is not None and action.nargs != 0:
            values = _values(state, action)
            return Completions(
                [(f"{name}={word}", text) for word, text in values.words], values.kind
            )
        return Completions(_open_options(state))
    if subparsers(state.parser):
        return Completions(listed_commands(state.parser))
    expected = positionals(state.parser)
    if state.positional >= len(expected):
        return Completions(_open_options(state))
    values = _values(state, expected[state.positional])
    if state.given or state.positional:
        return values
    forms = [(name, text) for name, (_, text) in extra_forms(state.parser).items()]
    return Completions([*forms, *values.words], values.kind)


def _open_options(state: _LineState) -> list[tuple[str, str]]:
    """The long spelling of every option that can still be given."""
    used = set(state.given)
    for group in exclusive_groups(state.parser):
        used |= group if group & state.given else set()
    return [
        (max(action.option_strings, key=len), (action.help or "").strip())
        for action in actions(state.parser)
        if action.option_strings
        and action.help != argparse.SUPPRESS
        and (is_repeatable(action) or action.dest not in used)
        and _applies(state.parser, action.dest)
    ]


def _applies(parser: argparse.ArgumentParser, dest: str) -> bool:
    """Whether a command takes a global flag; its parser accepts all of them."""
    if f"--{dest}" not in VALUE_FLAGS or parser.get_default("capability") is None:
        return True
    arguments = argparse.Namespace(**defaults(parser), **{dest: "given"})
    fill_global_flags(arguments)
    try:
        check_flags(arguments)
    except InputError:
        return False
    return True


def _values(state: _LineState, action: argparse.Action) -> Completions:
    if action.choices is not None:
        return Completions([(str(choice), "") for choice in action.choices])
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    kind = _KINDS.get(metavar) or _KINDS.get(action.dest, "")
    if action.dest in ("name", "source"):
        kind = _FORM_NAMES.get(state.parser.prog.removeprefix("omnigraph "), "")
    is_file = not _FILE_NAMES.isdisjoint(re.split(r"[=|]", metavar))
    names = [(name, kind) for name in _names(kind, state.values)]
    return Completions(names, FILES if is_file else WORDS)


def _names(kind: str, values: Mapping[str, str]) -> Iterable[str]:
    """The names of one kind, in the operator's configuration or in the addressed graph."""
    if not kind:
        return ()
    from omnigraph.cli.operator_config import load_operator_config

    try:
        operator = load_operator_config()
        if kind in ("branch", "tag", "state"):
            return _graph_names(kind, values, operator)
        return tuple(getattr(operator, kind))
    except OmniGraphError:
        # Tab prints no errors.
        return ()


def _graph_names(kind: str, values: Mapping[str, str], operator: OperatorConfig) -> Iterable[str]:
    """The branches or tags of the addressed graph, if it is local."""
    from omnigraph.cli.scopes import ServerAddress, is_local, resolve_address

    given = {name: values.get(name) for name in ("uri", "store", "profile")}
    arguments = argparse.Namespace(**given, capability=Capability.ANY, label="completion")
    fill_global_flags(arguments)
    address = resolve_address(arguments, operator)
    if isinstance(address, ServerAddress) or not is_local(address):
        return ()
    from omnigraph.api.graph import Graph

    with Graph.open(address, "r") as graph:
        branches = [] if kind == "tag" else list(graph.branches.list())
        tags = [] if kind == "branch" else [tag.name for tag in graph.tags.list()]
        return [*branches, *tags]
