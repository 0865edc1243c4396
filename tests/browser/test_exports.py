"""Files that start a run: those of the page are those of the commands, or refused where they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from browser_answers import beyond_doubles
from browser_cases import MODELS, states
from oracles.extent import FULL, SEED

import shardmath
from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.formats.writers import WRITERS, written

CASES = 1500 if FULL else 150
#: The files of all formats of a state, or why there is none; nothing for a link that says more than the page has.
WRITE = """async (link) => {
  if (fromLink(link).length) return null;
  await ready();
  const files = {};
  for (const format of formatsOf(state)) {
    try {
      files[format] = [await writtenFile(format), ""];
    } catch (error) {
      if (!(error instanceof Unread)) throw error;
      files[format] = ["", error.message];
    }
  }
  return files;
}"""
#: Settings and kernels of the first model that change what is written, or that no format says.
CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"kernel": "fp8=delayed"}, {"kernel": "optimizer=precision_aware"}, {"kernel": "loss=te_fused"},
    {"kernel": "loss=liger"}, {"kernel": "attention=eager"},
    {"kernel": "attention=unfused"}, {"kernel": "precision=fp16"}, {"kernel": "optimizer=sgd"},
    {"distributed_optimizer": 0}, {"gradient_bytes": 2}, {"data_parallel_replicas": 2}, {"hidden_dropout": 1},
    {"overlap_grad_reduce": 1}, {"recompute_num_layers": 2}, {"vocab_multiple": 256}, {"microbatch_group": 8},
    {"reduce_bucket_size": 10**8}, {"expert_capacity_percent": 150}, {"matmul_efficiency": 700},
)


def _asked(state: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``explain`` for what a link says."""
    kernels = dict(pair.split("=") for pair in state.get("kernel", "").split(",") if pair)
    return {**{name: value for name, value in state.items() if name != "kernel"},
            **({"kernels": kernels} if kernels else {})}


def _assert_as_written(files: dict[str, list[str]], account: Any, state: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    assert [*files] == [name for name, format in WRITERS.items() if format.implementation == account.framework]
    for format, (text, why) in files.items():
        if beyond_doubles(why, account):
            continue
        expected = _written(format, account)
        assert (expected is None) == bool(why), (format, state, why)
        assert text == (expected or ""), (format, state)
        yield format, expected is not None


def _written(format: str, account: Any) -> str | None:
    """Return the file of the commands; None where they refuse it."""
    try:
        return written(format, account)
    except InputError:
        return None


def test_files_of_drawn_jobs_are_those_of_the_commands(opened: Callable[..., Any]) -> None:
    tab, seen = opened(), set()
    for state in states(Random(SEED), CASES):
        try:
            account = shardmath.explain(**state)
        except InputError:  # no such layout
            continue
        link = {**state, "sequence_parallel": int(state["sequence_parallel"])}
        seen |= {*_assert_as_written(tab.evaluate(WRITE, "#" + urlencode(link)), account, state)}
    assert {format for format, was_written in seen if was_written} == {*WRITERS} - {"deepspeed"}


def test_changed_settings_are_written_or_refused_as_by_the_commands(opened: Callable[..., Any]) -> None:
    tab, seen, changed = opened(), set(), 0
    for implementation in ("megatron", "torchtitan", "huggingface"):
        for change in (*CHANGES, *({"kernel": "data_parallel=deepspeed"},) * (implementation == "huggingface")):
            state = {"model": MODELS[0], "gpu": "h200-141gb", "implementation": implementation, "num_gpus": 64,
                     "tensor_parallel": 1 if implementation == "huggingface" else 4, "pipeline_parallel": 1,
                     "global_batch_size": 128, "seq_length": 4096, **change}
            try:
                account = shardmath.explain(**_asked(state))
            except InputError:  # the implementation has no such setting
                continue
            if files := tab.evaluate(WRITE, "#" + urlencode(state)):
                seen |= {*_assert_as_written(files, account, state)}
                changed += 1
    assert {was_written for _, was_written in seen} == {True, False}
    assert changed > 20


def test_models_of_the_catalogue_are_written_as_by_the_commands(opened: Callable[..., Any], whole: Path) -> None:
    tab = opened(path=whole)
    for name in read("models"):
        for implementation in ("megatron", "torchtitan", "huggingface"):
            state = {"model": name, "gpu": "h100-80gb", "implementation": implementation, "num_gpus": 64,
                     "tensor_parallel": 1, "pipeline_parallel": 1, "global_batch_size": 64, "seq_length": 2048}
            try:
                account = shardmath.explain(**state)
            except InputError:
                continue
            [*_assert_as_written(tab.evaluate(WRITE, "#" + urlencode(state)), account, state)]


def test_the_menu_saves_a_file_or_says_why_it_does_not(opened: Callable[..., Any]) -> None:
    tab = opened("#" + urlencode({"model": MODELS[2], "num_gpus": 8, "tensor_parallel": 8, "pipeline_parallel": 1,
                                  "seq_length": 4096}))
    tab.click("#exports summary")
    with tab.expect_download() as download:
        tab.click("[data-file=megatron]")
    account = shardmath.explain(MODELS[2], "h100-80gb", num_gpus=8, tensor_parallel=8, global_batch_size=1024,
                                seq_length=4096)
    assert download.value.suggested_filename == "run.sh"
    assert Path(download.value.path()).read_text(encoding="utf-8") == written("megatron", account)
    tab.evaluate("fromLink('#model=llama-3.1-8b&implementation=huggingface&num_gpus=8&tensor_parallel=1'"
                 " + '&pipeline_parallel=1'); update()")
    tab.wait_for_selector("html[data-ready]")
    tab.click("#exports summary")
    tab.click("[data-file=deepspeed]")
    assert "--zero-stage" in tab.inner_text("#notice")
