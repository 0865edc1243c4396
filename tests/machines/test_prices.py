"""The price of a GPU-hour: one number or one by kind, in every command that shows costs."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import shardmath
from shardmath import Cluster, InputError
from shardmath.cli.main import cli
from shardmath.machines.prices import priced, prices_of

MODEL, GPU = "llama-3.1-8b", "h100-80gb"
JOB = ("--gpu", GPU, "--num-gpus", "8", "--gbs", "64", "--tp", "2", "--pp", "2", "--cp", "1", "--mbs", "1",
       "--recompute", "none")
H100, H200 = Cluster.named(GPU), Cluster.named("h200-141gb")


def printed(*words: str) -> str:
    """Return the standard output of a command that ends well."""
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    return result.stdout


def costs(command: str, *words: str) -> Any:
    """Return the cost of a token by the JSON of a command."""
    told = json.loads(printed(command, MODEL, *JOB, *words, "--json"))
    found = {"explain": lambda: told["time"], "scale": lambda: told["points"][0]["time"],
             "recommend": lambda: told["choices"][0]["time"], "sweep": lambda: told["best"][0]}
    return found[command]()["cost_per_token"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["explain", "scale", "recommend", "sweep"])
def test_a_price_is_the_same_in_every_command_and_spelling(command: str) -> None:
    """A number, a number by kind and hundredths give the same cost, which is 0 without a price."""
    known = costs(command, "--price", "2.5")
    assert known == costs(command, "--price", "H100 80GB=$2.50") == costs(command, "--cents-per-gpu-hour", "250") > 0
    assert costs(command) == 0


def test_the_cost_of_a_token_is_the_price_of_its_gpu_seconds() -> None:
    """Price, seconds and tokens by hand."""
    time = shardmath.explain(MODEL, GPU, tensor_parallel=8, price=2.5).time
    assert time is not None
    assert time.cost_per_token == pytest.approx(8 * 2.5 / 3600 * time.seconds / time.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["scale", "recommend", "sweep"])
def test_tables_have_the_cost_of_a_million_tokens_with_a_price_alone(command: str) -> None:
    """The column stands in searches, whatever the price comes from."""
    plain, bought = (printed(command, MODEL, *JOB, *words) for words in ((), ("--price", "2.5")))
    assert " ".join(bought.split()) != " ".join(plain.split())
    assert "per M" in bought
    assert "per M" not in plain


@pytest.mark.slow
def test_a_plan_takes_the_same_prices() -> None:
    """One number for one kind, hundredths, and the old name, which warns."""
    def cost(**price: Any) -> object:
        return shardmath.plan(MODEL, "1B", [GPU], num_gpus=[8], tensor_parallel=[2], pipeline_parallel=[2],
                              recompute=["none"], **price).offers[0].cost

    known = cost(price=2.5)
    assert known is not None
    assert known == cost(price={GPU: "2.5"}) == cost(cents_per_gpu_hour=250)
    with pytest.warns(DeprecationWarning, match="price"):
        assert cost(prices={GPU: 2.5}) == known
    assert cost() is None


@pytest.mark.slow
def test_prices_of_a_cluster_with_several_kinds(tmp_path: Path) -> None:
    """Each kind has its own price; that of the file stays where no other is given."""
    path = tmp_path / "two.toml"
    path.write_text("network = 'ndr-400'\n" + "".join(
        f"[[kinds]]\ngpu = '{gpu}'\ngpus = 8\ncents_per_gpu_hour = {cents}\n" for gpu, cents in
        (("h100-80gb", 300), ("a100-80gb", 100))))
    two = shardmath.read_cluster(path)
    parts = two.parts
    assert prices_of(None, parts) == [3, 1]
    assert prices_of({"a100-80gb": 1.25}, parts) == [3, Fraction(5, 4)]
    assert [part.cents_per_gpu_hour for part in priced(two, {"a100-80gb": 1.25}).parts] == [300, 125]
    sizes: dict[str, Any] = {"tensor_parallel": 8, "pipeline_parallel": 2}
    asked = shardmath.explain(MODEL, two, price={"a100-80gb": 3}, **sizes).time
    alike = shardmath.explain(MODEL, two, price={"a100-80gb": 3, "h100-80gb": 3}, **sizes).time
    assert asked is not None
    assert asked == alike
    with pytest.raises(InputError, match="must be written GPU=PRICE for each of h100-80gb, a100-80gb"):
        shardmath.explain(MODEL, two, price=3, **sizes)


@pytest.mark.parametrize(("price", "words"), [
    ("cheap", "must be a number"), (-1, "must be a number"),
    (2.555, "whole hundredths of the currency; nearest legal: 2.56"),
    (float("nan"), "must be a number"), (True, "must be"), ({"b200": 3}, "must be of a GPU of the job: h100-80gb"),
    ({GPU: "x"}, "must be a number"), (10**9, "must be from 0 to 1000000"),
])
def test_bad_prices_are_refused(price: Any, words: str) -> None:
    """One error with the field, in every entry."""
    for ask in (lambda: shardmath.explain(MODEL, GPU, price=price),
                lambda: shardmath.scale(MODEL, GPU, [8], global_batch_size=8, price=price),
                lambda: shardmath.sweep(MODEL, GPU, 8, global_batch_size=8, price=price)):
        with pytest.raises(InputError) as refused:
            ask()
        assert refused.value.field == "price"
        assert words in str(refused.value)


def test_two_prices_for_one_thing_are_refused() -> None:
    """Both names, one number for several kinds, and one number beside others."""
    for ask in (lambda: shardmath.explain(MODEL, GPU, price=2, cents_per_gpu_hour=200),
                lambda: shardmath.recommend(MODEL, GPU, 8, global_batch_size=8, price=2, cents_per_gpu_hour=200),
                lambda: shardmath.plan(MODEL, "1B", [GPU], num_gpus=[8], price=2, cents_per_gpu_hour=200)):
        with pytest.raises(InputError, match="must not be given together with cents_per_gpu_hour"):
            ask()
    with pytest.raises(InputError, match="nearest legal: h100-80gb=2, h200-141gb=2"):
        prices_of(2, [H100, H200])
    result = CliRunner().invoke(cli, ["explain", MODEL, *JOB[:2], "--price", "2", "--price", f"{GPU}=3"])
    assert "must be written GPU=PRICE where there are several" in str(result.exception)
    result = CliRunner().invoke(cli, ["explain", MODEL, *JOB[:2], "--price", f"{GPU}=2,h200-141gb=3"])
    assert "price = 'h200-141gb': must be of a GPU of the job" in str(result.exception)
