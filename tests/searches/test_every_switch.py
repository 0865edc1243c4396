"""A search of every switch: bounds of boxes have the answers of loops, and each layout is what its account says."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import shardmath
from shardmath.cli.main import exit_code
from shardmath.cli.stopping import Stop
from shardmath.commands.recommend.asking import KINDS, _questions
from shardmath.configuration.run import search_of
from shardmath.models.model import Model
from shardmath.reports.sizes import in_words
from shardmath.search import answered as answering
from shardmath.search.answered import Answered, answered
from shardmath.search.boxes import preparing
from shardmath.search.choosing import SLOWER
from shardmath.search.further import SWITCHES
from shardmath.search.offered import left_out, spaces_of

pytestmark = pytest.mark.slow

#: A model of few layers, whose layouts loops look at in a second.
SMALL = Model.named("llama-3.2-1b").model_copy(update={"num_layers": 4})
JOBS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "megatron": (SMALL, 4, {"virtual_pipeline": [1, 2], "micro_batch_size": [1], "recompute": ["none", "full"]}),
    "torchtitan": ("llama-3.2-1b", 4, {"pipeline_parallel": [1], "micro_batch_size": [1, 2]}),
    "huggingface": ("llama-3.1-8b", 8, {"kernels": {"data_parallel": "fsdp"}}),
    "nanotron": ("llama-3.1-8b", 8, {}),
}


def _asked(implementation: str, **others: Any) -> dict[str, Any]:
    model, gpus, sizes = JOBS[implementation]
    return {"model": model, "gpu": "h100-80gb", "num_gpus": gpus, "global_batch_size": 8, "seq_length": 8192,
            "implementation": implementation, "every_switch": True, **sizes, **others}


def _near(answers: Answered, name: str, most: float) -> list[tuple[int | float, ...]]:
    return [tuple(item.keys.values()) for item in answers.front(name) if item.keys["step.time"] <= most]


def _kinds(answers: Answered, most: float) -> dict[tuple[int | str | None, ...], float]:
    """The least time of each combination of ranks, of those that are fast enough."""
    items = [item for item in answers.best("kinds") if item.keys["step.time"] <= most]
    return {tuple(item.labels.get(name) for name in KINDS): item.keys["step.time"] for item in items}


@pytest.mark.parametrize("implementation", JOBS)
def test_bounds_answer_as_loops(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = spaces_of(search_of(**_asked(implementation)), "time")
    looped = answered(spaces, lambda space: _questions(space, ()))
    assert looped.legal
    monkeypatch.setattr(answering, "_MANY", 0)
    bounded = answered(spaces, lambda space: _questions(space, ()), within=SLOWER)
    assert (bounded.legal, bounded.any_legal, bounded.size) == (None, True, looped.size)
    first = looped.first()
    assert first is not None
    assert bounded.first() == first or bounded.first().keys == first.keys  # type: ignore[union-attr]
    time = float(first.keys["step.time"])
    for name, most in (("fitting", (1 + SLOWER) * time), ("legal", time)):
        assert _near(bounded, name, most) == _near(looped, name, most)
    assert _kinds(bounded, (1 + SLOWER) * time) == _kinds(looped, (1 + SLOWER) * time)


@pytest.mark.parametrize("implementation", JOBS)
def test_layouts_are_what_their_accounts_say(implementation: str) -> None:
    asked = _asked(implementation)
    advice = shardmath.recommend(asked.pop("model"), asked.pop("gpu"), asked.pop("num_gpus"), **asked)
    swept = shardmath.sweep(**_asked(implementation))
    assert swept.best[0].step_seconds == advice.choices[0].time.seconds
    assert swept.best[0].peak_bytes == advice.choices[0].peak_bytes
    for choice in advice.choices:
        inputs = choice.explanation.inputs
        changed = choice.layout.keys() & SWITCHES.keys()
        assert {name: inputs[name] for name in changed} == {name: choice.layout[name] for name in changed}


def test_what_changes_nothing_is_left_as_it_is() -> None:
    """One rank has nothing to share out or to overlap, and no stages."""
    advice = shardmath.recommend(SMALL, "h100-80gb", 1, global_batch_size=2, seq_length=2048, every_switch=True)
    usual = shardmath.recommend(SMALL, "h100-80gb", 1, global_batch_size=2, seq_length=2048)
    assert advice.choices[0].layout == usual.choices[0].layout
    assert advice.choices[0].time == usual.choices[0].time


def test_more_switches_are_never_slower() -> None:
    asked = _asked("megatron")
    every = shardmath.sweep(**asked)
    some = shardmath.sweep(**{**asked, "every_switch": False})
    assert every.best[0].step_seconds is not None
    assert some.best[0].step_seconds is not None
    assert every.best[0].step_seconds <= some.best[0].step_seconds
    assert every.tried > some.tried


def test_what_was_tried_is_not_said_to_be_untried() -> None:
    told = {item.what for item in shardmath.sweep(**_asked("megatron")).untried}
    usual = {item.what for item in shardmath.sweep(**{**_asked("megatron"), "every_switch": False}).untried}
    option, = (item.option for item in shardmath.sweep(**{**_asked("megatron"), "every_switch": False}).untried
               if item.what not in told and "training" in item.what)
    assert option == "--every-switch"
    assert told < usual
    assert not any("groups of micro-batches" in what or "full recompute of some layers" in what for what in told)


def test_several_implementations_have_the_best_of_each() -> None:
    """An axis of one of them alone is left to it: Transformers shares weights out, nanotron does not."""
    asked = {**_asked("huggingface"), "implementation": ["huggingface", "nanotron"], "kernels": None}
    both = shardmath.sweep(**asked)
    alone = [shardmath.sweep(**{**asked, "implementation": name}) for name in asked["implementation"]]
    assert both.tried == sum(item.tried for item in alone)
    assert both.best[0].step_seconds == min(item.best[0].step_seconds for item in alone if item.best)


@pytest.mark.parametrize("gpus", [8, 1])
def test_a_plan_has_the_layouts_of_scale(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where bounds count no layouts. On one GPU nothing fits."""
    monkeypatch.setattr(answering, "_MANY", 0)
    asked = _asked("nanotron")
    kept = {name: asked[name] for name in ("implementation", "every_switch")}
    planned = shardmath.plan(asked["model"], "100B", [asked["gpu"]], num_gpus=[gpus], batch_tokens=2**16,
                             phases=["10B@1024"], **kept)
    scaled = [shardmath.scale(asked["model"], asked["gpu"], [gpus], global_batch_size=2**16 // length,
                              seq_length=length, **kept).points[0] for length in (8192, 1024)]
    offer, = planned.offers
    assert [phase.layout for phase in offer.phases] == [point.layout for point in scaled if point.layout is not None]
    assert offer.reason == ("" if gpus == 8 else "nothing fits")
    assert all(phase.layout.keys() & SWITCHES.keys() for phase in offer.phases)


def test_programs_that_are_not_counted_are_named() -> None:
    search = search_of(**{**_asked("torchtitan"), "pipeline_parallel": [1, 2]})
    told = left_out(search)
    assert told
    assert all("counted" in item.reason for item in told)


def test_an_option_that_no_program_can_have_is_named() -> None:
    search = search_of("deepseek-v3", "h800-80gb", 8, global_batch_size=64, every_switch=True)
    assert {space.kernels["context"] for space in spaces_of(search)} == {("ring",), ("all_to_all",)}
    assert "all_gather" in {item.options["context"] for item in left_out(search)}


def test_many_layouts_are_answered_without_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_MANY", 0)
    asked = _asked("nanotron")
    swept = shardmath.sweep(**asked)
    assert (swept.legal, swept.broken, swept.verdicts) == (None, (), {})
    assert swept.best[0].verdict == "fits"
    scaled = shardmath.scale(asked.pop("model"), asked.pop("gpu"), [asked.pop("num_gpus")], **asked)
    assert scaled.points[0].legal is None
    assert scaled.points[0].time is not None
    assert scaled.points[0].time.seconds == swept.best[0].step_seconds


@pytest.mark.parametrize(("implementation", "turns"), [("megatron", 0), ("megatron", 40), ("huggingface", 5)])
def test_a_search_that_is_stopped_says_how_much_faster_others_may_be(
    implementation: str, turns: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "_MANY", 0)
    left, seen = iter([False] * turns), list[tuple[int, int]]()
    asked, whole = _asked(implementation), _asked(implementation)
    advice = shardmath.recommend(**asked, stopped=lambda: next(left, True), progress=lambda *done: seen.append(done))
    best = shardmath.recommend(**whole, progress=lambda *done: seen.append(done))
    assert (advice.complete, best.complete, best.gap) == (False, True, 0.0)
    assert (advice.changes, advice.switches, advice.legal) == ((), None, None)
    assert advice.choices
    assert turns < 40 or advice.gap is not None
    if advice.gap is not None:
        assert advice.choices[0].time.seconds * (1 - advice.gap) <= best.choices[0].time.seconds * (1 + 1e-9)
    assert best.choices[0].time.seconds <= advice.choices[0].time.seconds
    assert seen[-1] == (best.size, best.size)
    assert all(0 <= done <= size for done, size in seen)


@pytest.mark.parametrize("many", [0, 10**11], ids=["bounds", "loops"])
def test_sweep_scale_and_plan_are_stopped_likewise(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds have first answers with a gap, loops what they looked at, and numbers of GPUs not begun no layout."""
    monkeypatch.setattr(answering, "_MANY", many)
    asked, seen = _asked("nanotron"), list[tuple[Any, ...]]()
    whole = shardmath.sweep(**asked)
    swept = shardmath.sweep(**asked, stopped=lambda: True)
    assert (whole.complete, whole.gap, swept.complete, swept.legal, swept.switches) == (True, 0.0, False, None, None)
    model, gpu, gpus = (asked.pop(name) for name in ("model", "gpu", "num_gpus"))
    scaled = shardmath.scale(model, gpu, [gpus, 2 * gpus], **asked, stopped=lambda: True,
                             progress=lambda *done: seen.append(done))
    first, second = scaled.points
    assert (scaled.complete, first.complete, second.complete) == (False, False, False)
    assert (second.layout, second.gap) == (None, None)
    assert second.missing == "the search was stopped before anything was found that fits"
    batch = {"batch_tokens": asked["global_batch_size"] * asked["seq_length"], "seq_length": asked["seq_length"]}
    others = {name: asked[name] for name in ("implementation", "every_switch")}
    planned = shardmath.plan(model, "1B", [gpu], num_gpus=[gpus, 2 * gpus], **batch, **others, stopped=lambda: True)
    assert not planned.complete
    assert [(offer.complete, offer.gap) for offer in planned.offers] == [(False, first.gap), (False, None)]
    if many:
        assert (swept.best, swept.smallest, swept.gap, first.layout) == ((), None, None, None)
        return
    assert first.time is not None
    best = whole.best[0].step_seconds
    assert best is not None
    assert first.time.seconds == swept.best[0].step_seconds
    for gap in (swept.gap, first.gap):  # questions differ, and with them the order of axes
        assert gap is not None
        assert first.time.seconds * (1 - gap) <= best * (1 + 1e-9)
    assert {words for *_, words in seen} == {"layouts on 8 h100-80gb"}
    shardmath.plan(model, "1B", [gpu], num_gpus=[gpus], **batch, **others, progress=lambda *done: seen.append(done))
    assert seen[-1] == (whole.tried, whole.tried, "layouts on 8 h100-80gb")


_JOB = ["--gbs", "8", "--seq", "8k"]
_COMMANDS = {
    "recommend": ["--gpu", "h100-80gb", "--gpus", "8", *_JOB], "sweep": ["--gpu", "h100-80gb", "--gpus", "8", *_JOB],
    "scale": ["--gpu", "h100-80gb", "--gpus", "8", *_JOB],
    "plan": ["--gpu", "h100-80gb", "--num-gpus", "8", "--tokens", "1B", "--batch-tokens", "65536", "--seq", "8k"],
}


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_search_that_nothing_was_found_by_does_not_say_that_nothing_fits(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "_MANY", 0)
    monkeypatch.setattr(Stop, "__call__", lambda self: True)
    monkeypatch.setattr(Stop, "number", signal.SIGINT)
    monkeypatch.setattr(preparing, "is_large", lambda part: False)
    arguments = [command, "llama-3.1-8b", *_COMMANDS[command], "--implementation", "nanotron", "--every-switch"]
    assert exit_code(arguments) == 130
    assert "others that fit may be faster, by at most " in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(preparing, "settled", lambda part, made, *_: made)  # no first answers were found
    assert exit_code([*arguments, "--fail-if-nothing-fits"]) == 130
    told = " ".join(capsys.readouterr().out.split()).lower()
    assert "the search was stopped" in told
    assert not any(words in told for words in ("nothing fits", "no layout is legal", "recommend` names"))
    if command in ("recommend", "sweep"):
        assert "others that fit may be faster, by how much is not known." in told


@pytest.mark.parametrize("path", ["--csv", "--plot"])
def test_a_sweep_that_writes_all_layouts_ends_at_once(path: str, tmp_path: Path) -> None:
    """Its files have all legal layouts or are not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardmath.cli.searching.stopping", lambda: pytest.fail("it was asked to end with a part"))
        file = tmp_path / f"layouts.{'csv' if path == '--csv' else 'svg'}"
        assert exit_code(["sweep", "llama-3.1-8b", *_COMMANDS["sweep"], "--implementation", "nanotron",
                          "--every-switch", "--tp", "8", path, str(file)]) == 0
    assert file.exists()


def test_rank_by_memory_is_refused() -> None:
    with pytest.raises(shardmath.InputError, match="rank_by = 'memory': must be time where every switch is tried"):
        shardmath.sweep(**_asked("nanotron"), rank_by="memory")


def test_words_name_each_switch_that_is_not_as_usual() -> None:
    swept = shardmath.sweep(**_asked("nanotron"))
    layouts = [item.to_dict() for item in swept.best]
    assert len({str(layout) for layout in layouts}) == len(layouts)
    words = in_words({**layouts[0], "distributed_optimizer": 1, "recompute_num_layers": 3})
    assert words.endswith("recompute layers 3, distributed optimizer on")
