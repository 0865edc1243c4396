"""A bash script read, never run: the values of its variables and arrays, and the commands that it would start.

Assignments, arrays, defaults, sums, decided conditions, ``case`` and functions are followed. Words that only a run
could tell (output of commands, variables of the environment) keep a mark with the name of the missing value.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.scripts import expansion
from shardmath.formats.scripts.arithmetic import Value
from shardmath.formats.scripts.conditions import below, branch, holds, matches, unset_and_compared

#: Nodes of a script that are looked at, and characters of all values and words together: far more than a launch needs.
LARGEST_SCRIPT, LARGEST_TEXT = 200_000, 2**22

#: Characters that the grammar does not know, and how they are written while it reads them.
_FOREIGN, _CODED = re.compile(r"[^\x00-\x7f]"), re.compile(r"_u([0-9a-f]{6})_")

#: Commands that run the script that they are given as input, and how deep these may lie in one another.
_SHELLS, _DEEPEST = ([b"sbatch"], [b"bash"], [b"sh"]), 8


@dataclass
class Script:
    """Content of a script: ``variables`` by name, ``commands`` as lists of words, ``notes`` on omitted parts.

    ``choices`` has variables that only branches assign of which none was taken: the unset variable that they compare,
    and the words that they compare it with.
    """

    variables: dict[str, Value] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    choices: dict[str, tuple[str, list[str]]] = field(default_factory=dict)


def read_script(path: str, text: str, values: Mapping[str, str]) -> Script:
    """Read the script ``text`` of the file ``path``; ``values`` are variables that somebody gives it, 1 for $1.

    Raises InputError for a script that is too long, nests too deeply or grows without bound.
    """
    reader = _Reader(path, {_coded(name): _coded(value) for name, value in values.items()})
    try:
        reader.statements(_parse(path, _coded(text)))
    except RecursionError:
        raise InputError("script", path, "must not nest so deeply") from None
    script = reader.script
    return Script(
        {_decoded(name): _decoded(value) if isinstance(value, str) else [_decoded(item) for item in value]
         for name, value in script.variables.items()},
        [[_decoded(word) for word in command] for command in script.commands],
        [_decoded(note) for note in script.notes],
        {_decoded(name): (_decoded(asked), [_decoded(word) for word in words])
         for name, (asked, words) in script.choices.items()},
    )


def _coded(text: str) -> str:
    """Return the text in ASCII: the grammar looks characters up in a C table of 256 entries, and reads beyond it."""
    return _FOREIGN.sub(lambda match: f"_u{ord(match[0]):06x}_", expansion.plain(text))


def _decoded(text: str) -> str:
    return _CODED.sub(lambda match: chr(min(int(match[1], 16), sys.maxunicode)), text)


def _parse(path: str, text: str) -> Any:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        rule = "must be read with tree-sitter, which is missing: pip install 'shardmath[shell]'"
        raise InputError("script", path, rule) from None
    language = tree_sitter.Language(tree_sitter_bash.language())
    return tree_sitter.Parser(language).parse(expansion.plain(text).encode("ascii")).root_node


class _Reader:
    """Follows the statements of one script."""

    def __init__(self, path: str, variables: dict[str, str]) -> None:
        self.path, self.given = path, variables
        self.script = Script(variables=dict(variables))
        self.functions: dict[str, Any] = {}
        self.active: list[str] = []
        self.nodes = self.characters = 0

    def statements(self, node: Any) -> None:
        for child in node.named_children:
            self.statement(child)

    def statement(self, node: Any) -> None:
        self.nodes += 1
        if self.nodes > LARGEST_SCRIPT:
            raise InputError("script", self.path, f"must have at most {LARGEST_SCRIPT} statements")
        follow = getattr(self, f"_{node.type}", None)
        if follow is not None:
            follow(node)
        elif node.type in ("for_statement", "c_style_for_statement", "while_statement"):
            self.note(node, "this loop is not followed")

    def note(self, node: Any, text: str) -> None:
        self.script.notes.append(f"line {node.start_point[0] + 1}: {text}")

    def words(self, nodes: list[Any]) -> list[str]:
        expanded = [word for node in nodes for word in expansion.words(node, self.script.variables)]
        self.grown(sum(map(len, expanded)) + len(expanded))
        return expanded

    def grown(self, characters: int) -> None:
        self.characters += characters
        if self.characters > LARGEST_TEXT:
            raise InputError("script", self.path, f"must not grow beyond {LARGEST_TEXT} characters")

    # -- statements -----------------------------------------------------------------------------------------------

    def _variable_assignment(self, node: Any) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            self.note(node, "this assignment is not followed")
            return
        key = name.text.decode()
        if key in self.given:
            return
        known = self.script.variables
        added = any(child.type == "+=" for child in node.children)
        new: Value
        if value is None:
            new = ""
        elif value.type == "array":
            new = self.words([child for child in value.named_children if child.type != "comment"])
        else:
            new = expansion.text(value, known)
        new = _assigned(known.get(key), new, added)
        known[key] = new
        self.grown(len(new) if isinstance(new, str) else sum(map(len, new)))

    def _variable_assignments(self, node: Any) -> None:
        self.statements(node)

    def _declaration_command(self, node: Any) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.statement(child)

    def _unset_command(self, node: Any) -> None:
        for child in node.named_children:
            if child.text.decode() not in self.given:
                self.script.variables.pop(child.text.decode(), None)

    def _command(self, node: Any) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.statement(child)
        name = node.child_by_field_name("name")
        arguments = node.children_by_field_name("argument")
        words = self.words([*(name.named_children if name is not None else ()), *arguments])
        if not words:
            return
        if words[0] in self.functions and words[0] not in self.active:
            self._call(words)
        elif words[0] in ("source", "."):
            self.note(node, f"{words[0]} {' '.join(words[1:2])} is not followed")
        elif command := _flattened(words):
            self.script.commands.append(command)

    def _call(self, words: list[str]) -> None:
        before = dict(self.script.variables)
        self.active.append(words[0])
        self.script.variables |= {str(place): word for place, word in enumerate(words[1:], 1)}
        self.statements(self.functions[words[0]])
        self.active.pop()
        for place in range(1, len(words)):
            self.script.variables.pop(str(place), None)
        self.script.variables |= {name: value for name, value in before.items() if name.isdigit()}

    def _function_definition(self, node: Any) -> None:
        self.functions[node.child_by_field_name("name").text.decode()] = node.child_by_field_name("body")

    def _redirected_statement(self, node: Any) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self.statement(body)
        for child in node.named_children:
            if child.type == "heredoc_redirect" and body is not None and body.text.split()[:1] in _SHELLS:
                self._here_document(child)

    def _here_document(self, node: Any) -> None:
        """Follow a script that another shell or a scheduler is given as input."""
        inner = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        start = next((child for child in node.named_children if child.type == "heredoc_start"), None)
        if inner is None or start is None or len(self.active) > _DEEPEST:
            return
        quoted = start.text[:1] in (b"'", b'"', b"\\")
        text = inner.text.decode() if quoted else expansion.here_document(inner, self.script.variables)
        self.grown(len(text))
        self.active.append("")
        self.statements(_parse(self.path, text))
        self.active.pop()

    def _pipeline(self, node: Any) -> None:
        self.statements(node)

    _compound_statement = _subshell = _pipeline

    def _list(self, node: Any) -> None:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        decided = holds(left, self.script.variables)
        if decided is None and left.type in ("test_command", "negated_command"):
            self.left_out(right)
            return
        if left.type not in ("test_command", "negated_command"):
            self.statement(left)
            decided = True
        if decided == (operator == "&&"):
            self.statement(right)

    def _if_statement(self, node: Any) -> None:
        branches = [node, *(child for child in node.children if child.type in ("elif_clause", "else_clause"))]
        for part_of in branches:
            condition, body = branch(part_of)
            decided = holds(condition[-1], self.script.variables) if condition else part_of.type == "else_clause"
            if decided is None:
                self.left_out(*body)
            elif decided:
                for part in body:
                    self.statement(part)
                return
            elif compared := unset_and_compared(condition[-1], self.script.variables) if condition else None:
                self.left_to_choose(compared, body)

    def _case_statement(self, node: Any) -> None:
        value = expansion.empty_unless_set(expansion.text(node.child_by_field_name("value"), self.script.variables))
        if value is None:
            self.note(node, "this case is not decided")
            return
        for item in node.named_children:
            if item.type != "case_item":
                continue
            patterns = item.children_by_field_name("value")
            legal = [expansion.text(pattern, self.script.variables) for pattern in patterns]
            if any(matches(value, pattern) for pattern in legal):
                for part in item.named_children[len(patterns):]:
                    self.statement(part)
                return
            name = expansion.whole_name(expansion.text(node.child_by_field_name("value"), self.script.variables))
            if name and not any(sign in legal[0] for sign in "*?["):
                self.left_to_choose((name, legal[0]), item.named_children[len(patterns):])

    def left_to_choose(self, compared: tuple[str, str], body: list[Any]) -> None:
        """Keep the word with which an unset variable would have led to assignments."""
        name, word = compared
        for inner in (inner for part in body for inner in below(part) if inner.type == "variable_assignment"):
            target = inner.child_by_field_name("name")
            key = target.text.decode() if target is not None else ""
            asked, words = self.script.choices.setdefault(key, (name, []))
            if asked == name and word not in words:
                words.append(word)

    def left_out(self, *nodes: Any) -> None:
        """Say so where an undecided condition guards assignments."""
        if any(inner.type == "variable_assignment" for node in nodes for inner in below(node)):
            self.note(nodes[0], "the condition of this is not decided, so it is left out")


def _assigned(old: Value | None, new: Value, added: bool) -> Value:
    """Return the value of a variable after an assignment; a text that is assigned to an array is its first element."""
    if isinstance(new, list):
        return new if old is None or not added else [*([old] if isinstance(old, str) else old), *new]
    if isinstance(old, list):
        return [("".join(old[:1]) if added else "") + new, *old[1:]]
    return (old or "") + new if added else new


def _flattened(words: list[str]) -> list[str]:
    """Return the words; the single text that ``eval`` or another shell receives is split as these would."""
    if words[0] == "eval":
        return _split(" ".join(words[1:]))
    flat: list[str] = []
    for word in words:
        inner = ".py" in word and any(space in word for space in " \t\n")
        flat += _split(word) if inner else [word]
    return flat


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=False)
    except ValueError:  # a quotation mark without its pair
        return text.split()
