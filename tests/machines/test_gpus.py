"""GPUs: the catalogue's figures, the ways to name a card, and cards of one's own."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.machines.gpu import GIB, Gpu

MIB = 2**20

# What drivers report (nvidia-smi, rocm-smi), in bytes, where a card's figure is public.
REPORTED = {
    "v100-32gb": 32768 * MIB,
    "a100-40gb": 40960 * MIB,
    "a100-80gb": 81920 * MIB,
    "a100-pcie-80gb": 81920 * MIB,
    "h100-80gb": 81559 * MIB,
    "h100-pcie-80gb": 81559 * MIB,
    "h100-nvl-94gb": 95830 * MIB,
    "h20-96gb": 97871 * MIB,
    "gh200-96gb": 97871 * MIB,
    "h200-141gb": 143771 * MIB,
    "b200-180gb": 183359 * MIB,
    "gb200-186gb": 189471 * MIB,
    "b300-270gb": 275040 * MIB,
    "gb300-279gb": 284208 * MIB,
    "rtx-4090-24gb": 24564 * MIB,
    "rtx-3090-24gb": 24576 * MIB,
    "rtx-4080-16gb": 16376 * MIB,
    "rtx-5080-16gb": 16303 * MIB,
    "rtx-5090-32gb": 32607 * MIB,
    "rtx-pro-6000-96gb": 97887 * MIB,
    "a6000-48gb": 49140 * MIB,
    "rtx-6000-ada-48gb": 49140 * MIB,
    "mi250x-64gb-per-gcd": 65520 * MIB,
    "mi300x-192gb": 205_822_885_888,
    "mi350x-288gb": 309_220_868_096,
    "mi355x-288gb": 309_220_868_096,
}


@pytest.mark.parametrize("name", REPORTED)
def test_memory_is_within_one_percent_above_what_the_driver_reports(name: str) -> None:
    memory = Gpu.named(name).memory_bytes
    assert REPORTED[name] <= memory <= REPORTED[name] * 1.01


@pytest.mark.parametrize(("name", "reported"), [
    ("l40s", 46068), ("l4", 23034), ("a40", 46068), ("a10-24gb", 23028), ("a10g", 23028), ("t4", 15360),
])
def test_ecc_on_gddr6_takes_a_sixteenth(name: str, reported: int) -> None:
    """These cards are catalogued without that share taken off; their notes say so."""
    assert 0 <= Gpu.named(name).memory_bytes * 15 // 16 - reported * MIB < 16 * MIB
    assert f"{reported} MiB" in Gpu.named(name).note


@pytest.mark.parametrize("name", read("gpus"))
def test_every_entry_is_complete(name: str) -> None:
    gpu = Gpu.named(name)
    assert gpu.name == name
    assert gpu.source
    assert gpu.note
    assert gpu.node_size in (4, 8)
    assert f"{gpu.memory_gib:g}gb" in name
    assert gpu.memory_bytes == gpu.memory_gib * GIB


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("h200", "h200-141gb"),
        ("H20", "h20-96gb"),
        ("GeForce RTX 4090", "rtx-4090-24gb"),
        ("NVIDIA A100 80 GB", "a100-80gb"),
        ("H100-80GB", "h100-80gb"),
        ("NVIDIA H100 80 GB", "h100-80gb"),
        ("nvidia_h100_pcie", "h100-pcie-80gb"),
        (" H100 NVL ", "h100-nvl-94gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("RTX A6000", "a6000-48gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090-24gb"),
        ("RTX 6000 Ada", "rtx-6000-ada-48gb"),
        ("rtx-pro-6000", "rtx-pro-6000-96gb"),
        ("a10g", "a10g-24gb"),
        ("A10", "a10-24gb"),
        ("Tesla T4", "t4-16gb"),
        ("mi250x", "mi250x-64gb-per-gcd"),
        ("Tesla V100", "v100-32gb"),
    ],
)
def test_names_that_are_forgiven(given_name: str, name: str) -> None:
    assert Gpu.named(given_name).name == name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("a100", "a100-40gb or a100-80gb or a100-pcie-80gb"),
        ("H100", "h100-80gb or h100-pcie-80gb or h100-nvl-94gb"),
    ],
)
def test_a_name_of_several_cards_lists_them(name: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        Gpu.named(name)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize(
    "name", ["", " ", "-", "nvidia", "h1", "a100-41gb", "tpu", "h100-80gb-x", "a\nb", "x" * 9999]
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(InputError, match=r"^gpu = .*nearest legal: ") as caught:
        Gpu.named(name)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(InputError) as caught:
        Gpu.named("a100-41gb")
    assert "a100-40gb" in str(caught.value.nearest).split(" or ")


@pytest.mark.slow
@given(st.text())
def test_any_text_is_a_gpu_or_an_input_error(name: str) -> None:
    try:
        line = Gpu.named(name).name
    except InputError as error:
        line = str(error)
    assert line.isprintable()


def test_custom() -> None:
    gpu = Gpu.custom(95.5)
    assert (gpu.name, gpu.memory_bytes, gpu.node_size) == ("custom-95.5gib", 95 * GIB + GIB // 2, 8)
    assert Gpu.custom(24, node_size=2).node_size == 2
    assert Gpu.custom(4096).memory_bytes == 4 * 2**40


BAD_SIZES = [
    math.nan,
    math.inf,
    -math.inf,
    0,
    -0.0,
    -1,
    1e-300,
    4096.001,
    1e30,
    10**400,
]
#: Refusals of numbers that are in another unit.
OTHER_UNITS = [
    (80000, "78.125 if 80000 is in MiB"), (24564.0, "23.9883 if 24564 is in MiB"),
    (80 * 2**20, "80 if 83886080 is in KiB"), (80 * GIB, "80 if 85899345920 is in bytes"), (1e30, None), (-80, None),
]
BAD_TYPES = [True, "80", None, [80]]


@pytest.mark.parametrize("memory_gib", BAD_SIZES)
def test_custom_refuses(memory_gib: float) -> None:
    with pytest.raises(
        InputError, match=r"^gpu_memory_gib = .*: must be a number of GiB above 0 and at most 4096"
    ):
        Gpu.custom(memory_gib)


@pytest.mark.parametrize(("number", "nearest"), OTHER_UNITS)
def test_memory_in_another_unit_is_answered_in_gib(number: float, nearest: str | None) -> None:
    with pytest.raises(InputError) as caught:
        Gpu.custom(number)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize("memory_gib", BAD_TYPES)
def test_custom_refuses_what_is_no_number(memory_gib: object) -> None:
    with pytest.raises(InputError, match=r"^memory_gib = .*: must be a number$"):
        Gpu.custom(memory_gib)


@pytest.mark.parametrize("node_size", [0, -8, 2**17, True, 8.0, "8", None])
def test_node_size_refuses(node_size: int) -> None:
    with pytest.raises(InputError, match=r"^node_size = "):
        Gpu.custom(80, node_size=node_size)


@given(st.floats() | st.integers())
def test_any_number_is_a_card_or_an_input_error(memory_gib: float) -> None:
    try:
        gpu = Gpu.custom(memory_gib)
    except InputError:
        legal = 1 / GIB <= memory_gib <= 4096
        assert not legal
    else:
        assert 0 < gpu.memory_bytes <= 4 * 2**40
