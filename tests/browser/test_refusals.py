"""The page refuses as the commands do, and names the same legal values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from browser_answers import BEYOND, link_of
from browser_cases import states
from oracles.extent import FULL, SEED

import shardmath
from shardmath.errors import InputError, InputWarning
from shardmath.machines.network import Network

STATES = 1000 if FULL else 60
#: The arguments of each state that is refused, with the words of the page.
REFUSED = """async (links) => {
  await load("refusals");
  const told = [];
  for (const link of links) {
    fromLink(link);
    await ready();
    const { broken, refusal } = examined(state);
    const { model, gpu, implementation, schedule } = state;
    const ordered = schedulesOf(state).length > 1 && state.numbers.pipeline_parallel > 1 ? { schedule } : {};
    told.push([broken ?? "", { model, gpu, implementation, ...ordered, ...argumentsOf(state) },
      refusal ? withNearest(refusal).message : ""]);
  }
  return told;
}"""


def refusal(arguments: dict[str, Any]) -> str:
    """Return the words with which ``explain`` refuses arguments; empty where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            shardmath.explain(**arguments)
    except InputError as error:
        return str(error)
    return ""


def test_a_layout_is_refused_as_by_explain_with_the_nearest_legal_values(
    opened: Callable[..., Any], record_property: Any,
) -> None:
    drawn = [link_of(state) for state in states(Random(SEED), STATES)]
    refused = named = 0
    for broken, arguments, message in opened().evaluate(REFUSED, drawn):
        if broken.endswith(BEYOND) or not broken:
            continue
        assert message == refusal(arguments), arguments
        refused += 1
        named += "nearest legal: " in message
    assert refused > STATES // 10
    assert named > refused // 2
    record_property("refused", refused)


#: Functions that find an entry of the catalogue by its name.
NAMED: dict[str, Callable[[str], Any]] = {
    "model": shardmath.Model.named, "gpu": shardmath.Gpu.named, "network": Network.named}
#: Names that the commands take for those of the page.
CALLED = {
    "model": ("mixtral-8x7b", "meta-llama/Llama-3.1-8B", "llama3.1-8b", "Llama-2-13b-hf", "QWEN3-8B"),
    "gpu": ("h200", "NVIDIA H100 PCIe", "A100 40GB", "MI300X"),
    "network": ("ndr-400", "InfiniBand HDR"),
}


@pytest.mark.parametrize("field", CALLED)
def test_a_link_may_have_every_name_that_the_commands_take(field: str, opened: Callable[..., Any]) -> None:
    tab = opened()
    for name in CALLED[field]:
        refusals, own = tab.evaluate("async ([link, field]) => [await fromAnyLink(link), state[field]]",
                                     ["#" + urlencode({field: name}), field])
        assert (refusals, own) == ([], NAMED[field](name).name)


def test_a_link_may_have_sizes_as_people_type_them(opened: Callable[..., Any]) -> None:
    tab = opened("#tp=4&pp=2&gpus=64&gbs=128&seq=4096&micro-batch-size=2&recompute=mlp%2Bcore_attention"
                 "&against=model%3Dllama3.1-8b")
    assert tab.is_hidden("#notice")
    sizes = {"tensor_parallel": 4, "pipeline_parallel": 2, "num_gpus": 64, "global_batch_size": 128,
             "seq_length": 4096, "micro_batch_size": 2}
    assert tab.evaluate("(names) => names.map((name) => state.numbers[name])", [*sizes]) == [*sizes.values()]
    assert tab.evaluate("[state.recompute, kept.model]") == ["core_attention+mlp", "llama-3.1-8b"]


@pytest.mark.parametrize(("field", "name"), [
    ("model", "mixtrl"), ("model", "llama-3.1"), ("gpu", "A100"), ("gpu", "h300"), ("network", "wifi")])
def test_an_unknown_name_in_a_link_is_refused_as_by_the_commands(
    field: str, name: str, opened: Callable[..., Any], whole: Path,
) -> None:
    tab = opened("#" + urlencode({field: name}), path=whole)
    with pytest.raises(InputError) as refused:
        NAMED[field](name)
    assert tab.inner_text("#notice").splitlines()[1] == str(refused.value)


def test_the_nearest_legal_value_stands_below_the_rule(opened: Callable[..., Any]) -> None:
    tab = opened("#pipeline_parallel=3")
    tab.get_by_text("Nearest legal: pipeline_parallel 2 or 4.", exact=True).wait_for()
    tab.fill("#number-pipeline_parallel", "4")
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator("#nearest").count() == 0


@pytest.mark.parametrize(("name", "typed", "said"), [
    ("num_gpus", "0", "num_gpus = 0: must be an integer from 1 to 2147483648; nearest legal: 1"),
    ("num_gpus", "1.4", "num_gpus = 1.4: must be an integer from 1 to 2147483648; nearest legal: 1"),
    ("cents_per_gpu_hour", "-1",
     "price = -1: must be a number with at most two decimals from 0 to 90071992547409.92; nearest legal: 0"),
])
def test_a_number_out_of_range_has_a_nearest_one(name: str, typed: str, said: str, opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.fill(f"#number-{name}", typed)
    assert tab.inner_text("#notice") == f"{said}. All numbers are those of before."
