"""The smallest changes that make a configuration fit, against trying every change with ``explain``, one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from shardmath import InputError, Moves, explain, moves
from shardmath.account.configured import configured
from shardmath.cli.main import exit_code
from shardmath.commands.moves import Move
from shardmath.commands.moves.around import Around
from shardmath.commands.moves.smallest import singles

Key = frozenset[tuple[str, int | str]]
MODES = ("none", "core_attention", "mlp", "core_attention+mlp", "full")

#: What is tried one by one: a model, its arguments and the memory; everything that may change, by name.
CASES: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "nanotron, of which nothing is derived": (
        {"implementation": "nanotron", "tensor_parallel": 2, "num_gpus": 8, "global_batch_size": 16,
         "seq_length": 4096},
        {"tensor_parallel": (1, 2, 4, 8), "pipeline_parallel": (1, 2, 4, 8), "micro_batch_size": (1, 2, 4, 8, 16),
         "sequence_parallel": (0, 1), "recompute": ("none", "full"), "zero_stage": (0, 1)},
    ),
    "Hugging Face with stages of DeepSpeed": (
        {"implementation": "huggingface", "num_gpus": 8, "global_batch_size": 32, "seq_length": 2048,
         "micro_batch_size": 2, "kernels": {"optimizer": "sgd"}},
        {"micro_batch_size": (1, 2, 4, 8, 16, 32), "recompute": ("none", "full"), "zero_stage": (0, 1, 2, 3)},
    ),
    "Megatron-LM with interleaved pipelines": (
        {"implementation": "megatron", "pipeline_parallel": 2, "num_gpus": 4, "global_batch_size": 8,
         "seq_length": 8192},
        {"tensor_parallel": (1, 2, 4), "context_parallel": (1, 2, 4), "pipeline_parallel": (1, 2, 4),
         "virtual_pipeline": (1, 2, 4, 8, 16, 32), "micro_batch_size": (1, 2, 4, 8), "sequence_parallel": (0, 1),
         "recompute": MODES, "gradients": ("fp32", "bf16"), "zero_stage": (0, 1),
         "optimizer": ("adamw", "precision_aware")},
    ),
}
MODEL = "llama-3.2-1b"


class Tried:
    """Configurations by what they change, each explained alone; illegal ones are None."""

    def __init__(
        self, arguments: Mapping[str, Any], choices: Mapping[str, tuple[Any, ...]], gpu: str, model: str = MODEL,
    ) -> None:
        self.arguments, self.choices, self.gpu, self.model = dict(arguments), choices, gpu, model
        own = explain(model, gpu, **arguments)
        value = own.inputs
        self.own: dict[str, Any] = {name: value.get(name) for name in choices}
        self.own |= {name: known for name, known in {
            "recompute": own.recompute, "gradients": {4: "fp32", 2: "bf16"}[value["gradient_bytes"]],
            "optimizer": own.choices["optimizer"], "zero_stage": value["distributed_optimizer"],
        }.items() if name in choices}
        self.found: dict[Key, tuple[int, float] | None] = {frozenset(): self._of({})}

    def sets(self, size: int) -> Iterator[Key]:
        """All sets of changes of a size, legal or not."""
        for names in combinations(self.choices, size):
            others = ([value for value in self.choices[name] if value != self.own[name]] for name in names)
            for values in product(*others):
                yield frozenset(zip(names, values, strict=True))

    def __call__(self, changes: Key) -> tuple[int, float] | None:
        if changes not in self.found:
            self.found[changes] = self._of(dict(changes))
        return self.found[changes]

    def _of(self, changes: dict[str, Any]) -> tuple[int, float] | None:
        tensor = changes.get("tensor_parallel", self.own.get("tensor_parallel", 1))
        stages = changes.get("pipeline_parallel", self.own.get("pipeline_parallel", 1))
        asked = dict(changes)
        if "sequence_parallel" in asked:
            usual = int(tensor > 1 and (self.own["tensor_parallel"] == 1 or self.own["sequence_parallel"]))
            if asked["sequence_parallel"] != 1 - usual:  # what comes with the tensor-parallel size changes nothing
                return None
            asked["sequence_parallel"] = bool(asked["sequence_parallel"])
        if asked.get("virtual_pipeline", 1) > 1 and stages == 1:
            return None
        if "optimizer" in asked:
            asked["kernels"] = {"optimizer": asked.pop("optimizer")}
        try:
            found = explain(self.model, self.gpu, **{**self.arguments, **asked})
        except InputError:
            return None
        assert found.time is not None
        return found.peak.total, found.time.seconds


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("percent", [100, 65])
def test_smallest_changes_are_those_of_trying_all(case: str, percent: int) -> None:
    """Single changes and pairs: all legal ones that fit and of which no part fits, and no others."""
    arguments, choices = CASES[case]
    tried = Tried(arguments, choices, "a100-40gb")
    own = tried(frozenset())
    assert own is not None
    share = (own[0] - 1) * percent // 100 / (40 * 2**30)
    found = moves(MODEL, "a100-40gb", share=share, **arguments)
    assert found.peak.total == own[0] > found.limit_bytes
    expected = dict[Key, tuple[int, float]]()
    for size in (1, 2):
        for changes in tried.sets(size):
            parts = (part for count in range(1, size) for part in map(frozenset, combinations(changes, count)))
            if not any(part in expected for part in parts):
                result = tried(changes)
                if result is not None and result[0] <= found.limit_bytes:
                    expected[changes] = result
    small = {move.key: move for move in found.smallest if len(move.changes) <= 2}
    assert small.keys() == expected.keys()
    for key, move in small.items():
        _agrees(move, expected[key])
        assert move.margin_bytes == found.limit_bytes - move.peak_bytes >= 0
        assert move.ratio == pytest.approx(expected[key][1] / own[1], rel=1e-9)
    seconds = [move.seconds for move in found.smallest]
    assert seconds == sorted(seconds)  # type: ignore[type-var]
    for move in found.smallest:  # more changes at once only where fewer do not do
        assert len(move.changes) <= 2 or not expected


def _agrees(move: Move, expected: tuple[int, float]) -> None:
    """What a move is said to need is what ``explain`` says of it."""
    assert move.peak_bytes == expected[0]
    assert move.seconds == pytest.approx(expected[1], rel=1e-9)
    again = explain(MODEL, "a100-40gb", **move.arguments)
    assert again.peak.total == move.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_differences_are_the_next_values_of_all_choices(case: str) -> None:
    arguments, choices = CASES[case]
    tried = Tried(arguments, choices, "a100-40gb")
    legal = {changes: result for changes in tried.sets(1) if (result := tried(changes)) is not None}
    found = moves(MODEL, "a100-40gb", **arguments)
    expected = set[Key]()
    for name in choices:
        after = [value for changes in legal for changed, value in changes if changed == name]
        if isinstance(tried.own[name], int):
            below, above = ([value for value in after if (value > tried.own[name]) == larger] for larger in (0, 1))
            after = [*([max(below)] if below else []), *([min(above)] if above else [])]
        expected |= {frozenset({(name, value)}) for value in after
                     if legal[frozenset({(name, value)})] != tried(frozenset())}
    assert {move.key for move in found.differences if move.changes[0].name != "data_parallel"} == expected
    for move in found.differences:
        again = explain(MODEL, "a100-40gb", **move.arguments)
        assert again.time is not None
        assert (again.peak.total, again.time.seconds) == (move.peak_bytes, pytest.approx(move.seconds, rel=1e-9))
    assert [move.peak_bytes for move in found.differences] == sorted(move.peak_bytes for move in found.differences)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_gains_are_worth_it_and_fit(case: str) -> None:
    """Every single change and pair that is 1 % faster than now, and than every part that is."""
    arguments, choices = CASES[case]
    tried = Tried(arguments, choices, "a100-40gb")
    own = tried(frozenset())
    assert own is not None
    found = moves(MODEL, "h200", share=1, **{**arguments, "network": "hdr"})
    assert found.fits
    assert found.smallest == ()
    assert found.seconds is not None
    for move in found.gains:
        assert move.peak_bytes <= found.limit_bytes
        assert move.seconds is not None
        assert move.seconds < 0.99 * found.seconds
        faster = [part.seconds for part in found.gains if part.key < move.key]
        assert all(move.seconds < 0.99 * seconds for seconds in faster if seconds is not None)


@pytest.mark.slow
def test_three_changes_where_two_do_not_do() -> None:
    """Every set of three that fits, and no other; no single change and no pair fits."""
    arguments: dict[str, Any] = {"implementation": "nanotron", "num_gpus": 16, "global_batch_size": 16}
    found = moves("llama-3.1-8b", "a100-40gb", share=0.31, **arguments)
    choices = {
        **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "micro_batch_size"), (1, 2, 4, 8, 16)),
        "sequence_parallel": (0, 1), "recompute": ("none", "full"), "zero_stage": (0, 1),
    }
    tried = Tried(arguments, choices, "a100-40gb", "llama-3.1-8b")
    fitting = {size: {changes: result for changes in tried.sets(size)
                      if (result := tried(changes)) is not None and result[0] <= found.limit_bytes}
               for size in (1, 2, 3)}
    assert not fitting[1]
    assert not fitting[2]
    assert fitting[3]
    assert {move.key: (move.peak_bytes, move.seconds) for move in found.smallest} == {
        changes: (peak, pytest.approx(seconds, rel=1e-9)) for changes, (peak, seconds) in fitting[3].items()}
    assert found.least.peak_bytes <= min(move.peak_bytes for move in found.smallest)


@pytest.mark.slow
def test_sizes_of_a_model_with_experts_change_one_by_one() -> None:
    """Every legal single change of a size of Mixtral, among them experts shared out, against ``explain``."""
    arguments: dict[str, Any] = {"tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 2, "num_gpus": 16,
                                 "global_batch_size": 16, "seq_length": 4096}
    choices: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size"),
                        (1, 2, 4, 8, 16)),
        "expert_parallel": (1, 2, 4, 8), "virtual_pipeline": (1, 2, 4, 8, 16, 32), "sequence_parallel": (0, 1),
        "expert_tensor_parallel": (1, 2, 4, 8), "account_for_embedding": (0, 1), "account_for_loss": (0, 1),
    }
    tried = Tried(arguments, choices, "h100-80gb", "mixtral-8x7b")
    expected = {changes: result for changes in tried.sets(1) if (result := tried(changes)) is not None}
    around = Around(configured("mixtral-8x7b", "h100-80gb", **arguments), arguments, 0, 1.0, 0)
    found = {move.key: move for move in singles(around, ()) if move.changes[0].name != "recompute"}
    assert found.keys() == expected.keys()
    assert {name for changes in expected for name, _ in changes} > {"expert_parallel", "virtual_pipeline"}
    for key, move in found.items():
        assert (move.peak_bytes, move.seconds) == (expected[key][0], pytest.approx(expected[key][1], rel=1e-9))


@pytest.mark.slow
def test_what_nothing_makes_fit() -> None:
    found = moves("llama-3.1-405b", "h100-80gb", tensor_parallel=8, num_gpus=8, global_batch_size=8)
    assert not found.fits
    assert (found.smallest, found.gains) == ((), ())
    assert found.least.peak_bytes > found.limit_bytes


@pytest.mark.slow
def test_without_figures_of_a_machine_there_is_no_time() -> None:
    from shardmath import Gpu

    found = moves(MODEL, Gpu.custom(8), num_gpus=8, global_batch_size=8, share=1)
    assert found.seconds is None
    assert found.time_unknown.startswith("gpu = 'custom-8gib': must have speeds")
    assert found.smallest
    assert {move.seconds for move in (*found.smallest, *found.differences)} == {None}
    ranks = [move.ratio for move in found.smallest]
    assert set(ranks) == {None}


@pytest.mark.slow
def test_an_explicit_list_of_layers_stays_or_goes_as_a_whole() -> None:
    arguments: dict[str, Any] = {"implementation": "nanotron", "pipeline_parallel": 2, "pipeline_layout": "7,9",
                                 "num_gpus": 4, "global_batch_size": 8}
    found = moves(MODEL, "a100-40gb", share=0.2, **arguments)
    names = {change.name for move in (*found.differences, *found.smallest) for change in move.changes}
    assert "pipeline_layout" in names
    for move in (*found.differences, *found.smallest):
        kept = all(change.name != "pipeline_layout" for change in move.changes)
        assert (move.arguments["pipeline_layout"] is not None) == kept
        again = explain(MODEL, "a100-40gb", **move.arguments)
        assert again.peak.total == move.peak_bytes
        assert again.time is not None
        assert again.time.seconds == pytest.approx(move.seconds, rel=1e-9)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"share": 0}, "share = 0: must be a number above 0 and at most 1"),
    ({"share": "half"}, "share = 'half': must be a number"),
    ({"share": float("nan")}, "share = nan: must be a number"),
    ({"vary": ["loos"]}, "vary = 'loos': must be a kernel axis that can be chosen; nearest legal: loss"),
    ({"vary": ["layers"]}, "vary = 'layers': must be a kernel axis"),
    ({"vary": ["tensor_axes"]}, "vary = 'tensor_axes': must be a kernel axis"),
    ({"tensor_parallel": 3}, "tensor_parallel = 3: must divide num_attention_heads"),
])
def test_bad_input_is_refused_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        moves(MODEL, "a100-40gb", **arguments)
    assert str(refused.value).startswith(words)


@pytest.mark.slow
def test_the_command_prints_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["moves", MODEL, "--gpu", "a100-40gb", "--implementation", "nanotron", "--tp", "2", "--num-gpus", "8",
             "--global-batch-size", "16", "--share", "0.25"]
    assert exit_code(asked) == 0
    shown = capsys.readouterr().out
    for words in ("Sensitivities", "dM/dx", "One thing changed", "The smallest changes that make it fit",
                  "DP 4 -> 8 (16"):
        assert words in shown
    assert exit_code([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert not data["fits"]
    assert data["peak_bytes"] > data["limit_bytes"] >= data["smallest"][0]["peak_bytes"]
    assert data["sensitivities"][0]["name"] in shown
    assert f"nine were within {data['error']:.1%} of the predicted time" in shown
    assert exit_code([*asked, "--formula", "seq_length"]) == 0
    assert "2*b*H_d*(h/tₛ + 4*f*(1 - μ)/t)/c" in capsys.readouterr().out
    assert exit_code([*asked, "--formula", "seq_length", "--json"]) == 0
    formulas = json.loads(capsys.readouterr().out)["formulas"]
    assert formulas["slope"] == next(item["below"] for item in data["sensitivities"] if item["name"] == "seq_length")
    assert exit_code([*asked, "--formula", "seqlength"]) == 2
    assert "nearest legal: seq_length" in capsys.readouterr().err
    assert exit_code([*asked, "--share", "2"]) == 2
    assert capsys.readouterr().err.startswith("error: share = '2': must be a number above 0 and at most 1")


@pytest.mark.slow
def test_the_answer_has_its_type() -> None:
    assert isinstance(moves(MODEL, "h100-80gb", implementation="nanotron"), Moves)


@pytest.mark.slow
def test_the_python_of_the_page_is_true() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "moves.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert example is not None
    exec(compile(example[1], "docs/moves.md", "exec"), {})
