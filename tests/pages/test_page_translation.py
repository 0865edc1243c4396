"""Writers of formats in JavaScript: all that they use of Python is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardmath.commands.page.exports import format_data, writer_script
from shardmath.commands.page.families import reader_script
from shardmath.commands.page.refusals import refusal_script
from shardmath.commands.page.translating import Translation
from shardmath.configuration.nearest import Attempts
from shardmath.files.rendering import text_of
from shardmath.formats.writers import WRITERS

#: Methods of objects that the page makes itself.
_OF_OBJECTS = {"end", "findall", "finditer", "fromkeys", "fullmatch", "match", "model_dump", "ratio", "search", "sub",
               *vars(Attempts), "_refused"}


@pytest.mark.parametrize("write", [writer_script, refusal_script])
def test_every_built_in_name_is_there(write: Callable[[], str]) -> None:
    runtime, script = text_of("page/python.js"), write()
    known = runtime[runtime.index("const python = {"):runtime.index("const METHODS")]
    used = {*re.findall(r"\bpython\.(\w+)", script)}
    assert used
    assert not {name for name in used if not re.search(rf"\b{name}\b[:,(]", known)}
    called = {*re.findall(r'\bmethod\("(\w+)"', script)} - _OF_OBJECTS
    methods = runtime[runtime.index("const METHODS"):]
    assert not {name for name in called if not re.search(rf"\b{name}: \(", methods)}


def test_functions_of_the_page_get_arguments_by_name() -> None:
    """Those that are translated get them by their places."""
    assert "{ indent: 2 })" in writer_script()
    call = "megatron_reading_run_of(translated, name, undefined, nemo_reading_gpus(words), undefined, undefined, "
    assert call in reader_script()


def test_every_name_is_declared_once() -> None:
    declared = re.findall(r"^(?:function\*?|const) (\w+)", writer_script(), re.MULTILINE)
    assert len(declared) == len({*declared})


def added(notes: list[str]) -> None:
    notes += ["more"]


def test_a_list_of_a_caller_is_not_added_to_by_a_sign() -> None:
    """Python adds to the list itself, JavaScript would to a copy."""
    with pytest.raises(ValueError, match="no JavaScript for notes"):
        Translation({}).of(added)


def first_even(numbers: Iterator[int]) -> int | None:
    return next((number for number in numbers if number % 2 == 0), None)


def test_a_generator_asks_for_no_more_than_it_gives() -> None:
    translation = Translation({})
    translation.of(first_even)
    lazy = "(function* (first_) { for (const number of iterated(first_)) if (truth("
    assert lazy in "\n".join(translation.texts())


class Count:
    """A number that grows."""

    def __init__(self, start: int) -> None:
        self.now: int = start

    def more(self) -> int:
        """Add one."""
        self.now += 1
        return self.now


def counted(start: int) -> int:
    return Count(start).more()


def test_objects_of_named_classes_are_made() -> None:
    translation = Translation({}, classes=(Count,))
    translation.of(counted)
    maker = next(text for text in translation.texts() if "python.made(" in text)
    assert re.fullmatch(r"function (\w+)\(\.\.\.values\) \{ return python\.made\("
                        r"\{ __init__: \1___init__, more: \1_more \}, values\); \}", maker)
    assert "python.Count" not in "\n".join(translation.texts())
    untranslated = Translation({})
    untranslated.of(counted)
    assert "python.Count(start)" in "\n".join(untranslated.texts())


def merged(arguments: Any) -> Any:
    return arguments.arguments


def test_arguments_is_no_variable_of_javascript() -> None:
    """There it is the list of all arguments; as the name of a part it stays."""
    translation = Translation({})
    translation.of(merged)
    assert "(arguments_) {\n  return arguments_.arguments;" in "\n".join(translation.texts())


def padded(number: int) -> str:
    return f"{number:>9}"


def test_a_way_to_write_numbers_that_the_page_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no JavaScript for the format >9"):
        Translation({}).of(padded)


def test_every_format_has_a_title() -> None:
    formats = format_data()["formats"]
    assert [*formats] == [*WRITERS]
    assert len({item["title"] for item in formats.values()}) == len(WRITERS)


def test_every_name_of_the_reader_is_there() -> None:
    script = reader_script()
    used = {*re.findall(r"\bpython\.(\w+)", script)}
    declared = script[script.index("const python = {"):script.index("const METHODS")]
    own = {"Launch", "Model", "Name", "Options", "RopeScaling", "Run", "Sorted", "_Started"}
    assert not used - {*re.findall(r"\b(\w+)\b[:,(]", declared), *own}
