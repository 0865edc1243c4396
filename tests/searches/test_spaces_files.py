"""Spaces come back from TOML and YAML as they were; anything else in a file is an InputError of one line, at once."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL

from shardmath import InputError
from shardmath.search.spaces import (
    Best,
    Constraint,
    DivisorsOf,
    Front,
    Histogram,
    Multiples,
    PowersOfTwo,
    Range,
    Space,
    plain,
    read_space,
    space_of,
)

EXAMPLE = Path(__file__).parents[2] / "docs" / "spaces" / "llama-70b.toml"
TEXT = EXAMPLE.read_text(encoding="utf-8")


def toml(declared: dict[str, Any]) -> str:
    """Plain data as TOML."""
    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(inline, value)) + "]"
        return json.dumps(value)

    return "\n".join(f"{key} = {inline(value)}" for key, value in declared.items())


_NUMBERS = st.integers(1, 2**20)
_AMONG = st.sampled_from(("fits", "uncertain", "legal"))
_NAMES = st.sampled_from(("first", "second", "a-third"))
_FORMULAS = st.sampled_from(("peak", "-micro_batch_size", "num_gpus / tensor_parallel", "max(first.total, 2**30)"))
_NUMERIC = st.one_of(
    st.lists(_NUMBERS, min_size=1, max_size=5, unique=True).map(tuple),
    st.builds(lambda start, more, step: Range(start, start + more, step), _NUMBERS, st.integers(0, 900), _NUMBERS),
    st.builds(lambda bits, more: PowersOfTwo(2**bits, 2 ** (bits + more)), st.integers(0, 20), st.integers(0, 9)),
    st.builds(lambda of, more: Multiples(of, of, of * more), _NUMBERS, st.integers(1, 900)),
    st.builds(DivisorsOf, st.sampled_from(("num_gpus", "num_layers")), st.integers(1, 4), st.none() | _NUMBERS),
)
_AXES = st.dictionaries(
    st.sampled_from(("tensor_parallel", "micro_batch_size", "seq_length", "ffn_hidden_size")), _NUMERIC, min_size=1,
) | st.fixed_dictionaries({
    "recompute": st.just(("none", "full")), "gpu": st.just(("a100-40gb", "h200")), "sequence_parallel": st.just((0, 1)),
    "model": st.just(("llama-3-8b",)), "implementation": st.just(("megatron", "nanotron")),
})
_QUESTIONS = st.lists(st.one_of(
    st.builds(Best, _NAMES, st.lists(_FORMULAS, min_size=1, max_size=3).map(tuple), st.integers(1, 99), among=_AMONG),
    st.builds(Front, _NAMES, st.lists(_FORMULAS, min_size=2, max_size=3).map(tuple), _AMONG),
    st.builds(Histogram, _NAMES, _FORMULAS, st.sets(_NUMBERS, min_size=1).map(sorted).map(tuple), _AMONG),
), unique_by=lambda question: question.name).map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Declared spaces; most cannot be resolved."""
    axes = draw(_AXES)
    return Space(
        axes, None if "model" in axes else "llama-3.2-1b", None if "gpu" in axes else draw(st.none() | st.just("h200")),
        implementation=draw(st.sampled_from(("megatron", "torchtitan"))),
        fixed=draw(st.dictionaries(st.sampled_from(("num_gpus", "global_batch_size", "node_size")), _NUMBERS)),
        derived=draw(st.dictionaries(st.sampled_from(("num_layers", "vocab_size")), _FORMULAS))
        if "model" not in axes else {},
        constraints=tuple(map(Constraint, draw(st.sets(_NAMES)), ("peak < 3", "1 < 2", "num_gpus % 2 == 0"))),
        questions=draw(_QUESTIONS), kernels=draw(st.sampled_from(({}, {"loss": "bf16"}))),
        schedule=draw(st.sampled_from((None, "1f1b"))), zero_stage=draw(st.none() | st.integers(0, 3)),
        gradients=draw(st.sampled_from((None, "bf16"))),
    )


@pytest.mark.slow
@given(spaces())
def test_spaces_come_back_from_files(tmp_path_factory: pytest.TempPathFactory, space: Space) -> None:
    folder, declared = tmp_path_factory.mktemp("space"), plain(space)
    assert space_of(declared) == space
    for name, text in (
        ("space.toml", toml(declared)), ("space.yaml", yaml.safe_dump(declared, sort_keys=False)),
        ("SPACE.YML", json.dumps(declared)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        found = read_space(folder / name)
        assert found == space
        assert list(found.axes) == list(space.axes)


def test_the_examples_ask_what_they_say() -> None:
    space = read_space(EXAMPLE)
    part, = space.parts()
    assert [axis.name for axis in part.axes] == list(space.axes)
    assert part.axes[1].labels == (64, 128, 256, 512, 1024, 2048)
    assert part.axes[5].labels == (1, 2, 4, 5, 8, 10, 16, 20)
    assert part.size == 576_000
    assert {question.name for question in space.questions} == {"least_gpus", "memory_against_gpus", "peaks"}
    part, = read_space(EXAMPLE.with_name("shapes.yaml")).parts()
    assert part.size == 12_960
    assert set(part.derived) == {"data_parallel", "sequence_parallel", "head_dim", "ffn_hidden_size"}


def test_the_page_of_spaces_runs_and_speaks_the_truth() -> None:
    page = EXAMPLE.with_name("README.md").read_text(encoding="utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})
    refused = {
        "axes.tensor_paralel": {"axes": {"tensor_paralel": [1]}},
        "constraints.long": {"axes": {"seq_length": [8192]}, "constraints": {"long": "seq_length > 2**20"}},
        "derived.num_layers": {"derived": {"num_layers": "2 * num_layers"}},
    }
    good = {"model": "llama-3.2-1b", "gpu": "h200", "axes": {"tensor_parallel": [1]},
            "fixed": {"num_gpus": 8, "global_batch_size": 8}}
    for field, wrong in refused.items():
        with pytest.raises(InputError) as caught:
            space_of({**good, **wrong}).parts()
        line = next(line.strip() for line in page.splitlines() if line.strip().startswith(f"{field} ="))
        assert str(caught.value).startswith(line)


def outcome(folder_factory: pytest.TempPathFactory, name: str, content: bytes) -> Space | InputError:
    """The space in a file of these bytes, or why there is none."""
    file = folder_factory.mktemp("space") / name
    file.write_bytes(content)
    found: Space | InputError
    try:
        found = read_space(file)
        found.parts()
    except InputError as error:
        found = error
    assert isinstance(found, Space) or str(found).isprintable()
    return found


_KINDS = st.sampled_from(("a.toml", "a.yaml"))


@pytest.mark.slow
@given(_KINDS, st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_any_bytes_make_an_input_error(tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes) -> None:
    assert isinstance(outcome(tmp_path_factory, name, content), InputError)


@pytest.mark.slow
@given(st.integers(0, len(TEXT)), st.integers(0, 30), st.text(alphabet="{}[]=,.\"'*/ 0123abcz_\n", max_size=8))
def test_a_broken_example_is_a_space_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, start: int, length: int, put: str
) -> None:
    content = TEXT[:start] + put + TEXT[start + length:]
    outcome(tmp_path_factory, "a.toml", content.encode())


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from((1, 2, 8, 2**31, 2**62, 10**400)) | st.floats()
    | st.text(max_size=20) | st.dates() | _FORMULAS | st.sampled_from(("none", "full", "h200", "megatron", "num_gpus")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(max_size=5) | st.sampled_from(("range", "from", "to", "step", "powers_of_two", "multiples", "of",
                                               "divisors_of", "at_most", "best", "count", "per", "histogram", "edges",
                                               "front", "among", "tensor_parallel", "seq_length", "recompute", "gpu",
                                               "model", "num_layers", "head_dim", "data_parallel")) | st.integers(),
        inner, max_size=4),
    max_leaves=8,
)
_PATHS = (
    "model", "gpu", "implementation", "schedule", "gradients", "zero_stage", "axes", "axes.num_layers", "axes.gpu",
    "axes.gpu_memory_gib", "axes.model", "axes.recompute", "axes.seq_length", "axes.implementation", "fixed",
    "fixed.recompute", "fixed.gpu_memory_gib", "fixed.gradient_bytes", "derived", "derived.head_dim", "constraints",
    "constraints.x", "questions", "questions.q", "questions.q.best", "kernels", "kernels.loss",
)


@pytest.mark.slow
@settings(max_examples=300 if FULL else 80)
@given(st.dictionaries(st.sampled_from(_PATHS), _VALUES, min_size=1, max_size=3))
def test_any_values_make_a_space_or_an_input_error(changes: dict[str, Any]) -> None:
    declared: dict[Any, Any] = {
        "model": "llama-3.2-1b", "gpu": "h100-80gb", "axes": {"tensor_parallel": [1, 2]},
        "fixed": {"num_gpus": 8, "global_batch_size": 32}, "derived": {}, "constraints": {}, "kernels": {},
        "questions": {"q": {"best": ["peak"]}},
    }
    for path, value in changes.items():
        *tables, key = path.split(".")
        place: Any = declared
        for table in tables:
            place = place[table] if isinstance(place, dict) and table in place else {}
        if isinstance(place, dict):
            place[key] = value
    refused = None
    try:
        space_of(declared).parts()
    except InputError as error:
        refused = error
    assert str(refused).isprintable()


@pytest.mark.parametrize(("name", "content", "line"), [
    ("a.json", b"{}", "must be a file that ends in .toml, .yaml or .yml"),
    ("a.toml", b"", "must not be empty"),
    ("a.toml", b"\xff\xfe", "must be UTF-8 text"),
    ("a.toml", b"axes = {", "must be complete TOML"),
    ("a.toml", b"axes = {}\naxes = {}", "must be complete TOML"),
    ("a.toml", b"a = " + b"[" * 20 + b"]" * 20, "must not have more than 8 tables"),
    ("a.toml", b"a = " + b"[" * 60_000, "must not have more than 8 tables"),
    ("a.toml", b".".join([b"a"] * 20) + b" = 1", "must not have more than 8 tables"),
    ("a.toml", b".".join([b"a"] * 30_000) + b" = 1", "must not have more than 100 dots"),
    ("a.toml", b"x = " + b"9" * 5000, "must be complete TOML"),
    ("a.toml", b"#" * 2**16 + b"\n\n", "must be a declared space of at most"),
    ("a.yaml", b"- 1", "must be a table with model"),
    ("a.yaml", b"a: &a [1]\nb: *a", r"must not have aliases, such as \*a"),
    ("a.yaml", b"a: &a [*a]", "must not have aliases"),
    ("a.yaml", b"axes: {}\naxes: {}", "must not be there twice"),
    ("a.yaml", b"? [1, 2]\n: 3", "must be complete YAML"),
    ("a.yaml", b"!!python/object/apply:os.getcwd []", "must be complete YAML"),
    ("a.yaml", b"[" * 50_000, "must not have more than 8 tables"),
    ("a.yaml", b"a: 1\n---\nb: 1", "must be complete YAML"),
    ("a.yaml", b"axes: {2024-01-01: [1]}", "must be a name"),
    ("a.yaml", b"model: yes", "must be text"),
], ids=lambda value: str(value)[:20])
def test_files_that_hold_something_else(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes, line: str
) -> None:
    found = outcome(tmp_path_factory, name, content)
    with pytest.raises(InputError, match=line):
        raise found if isinstance(found, InputError) else AssertionError


def test_paths_that_lead_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    for path, rule in ((tmp_path / "folder.toml", "not of a folder"), (tmp_path / "a.toml", "an existing file")):
        with pytest.raises(InputError, match=rf"^space = .*{rule}"):
            read_space(path)


def test_dates_are_no_values() -> None:
    with pytest.raises(InputError, match=r"^fixed.seq_length = datetime.date\(2024, 1, 1\): must be an integer"):
        space_of({"axes": {"num_gpus": [1]}, "fixed": {"seq_length": date(2024, 1, 1)}})
