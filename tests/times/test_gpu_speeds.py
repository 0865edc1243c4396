"""Speeds of the catalogue's GPUs, against what follows from clocks, cores, pins and links that are published too."""

from __future__ import annotations

import pytest

from shardmath.catalogue import read
from shardmath.errors import ABSENT, InputError
from shardmath.machines import Network
from shardmath.machines.gpu import Gpu

GPUS = [Gpu.named(name) for name in read("gpus")]

#: Boost clock in MHz, tensor or matrix cores, and multiply-adds of one core and clock in fp16 with sums in fp32.
CORES = {
    "v100-32gb": (1530, 640, 64),
    "a100-40gb": (1410, 432, 256),
    "a100-80gb": (1410, 432, 256),
    "a100-pcie-80gb": (1410, 432, 256),
    "a800-80gb": (1410, 432, 256),
    "h100-80gb": (1830, 528, 512),
    "h100-pcie-80gb": (1620, 456, 512),
    "h800-80gb": (1830, 528, 512),
    "gh200-96gb": (1830, 528, 512),
    "h200-141gb": (1830, 528, 512),
    "l4-24gb": (2040, 232, 128),
    "l40s-48gb": (2520, 568, 128),
    "a6000-48gb": (1800, 336, 128),
    "rtx-4080-16gb": (2505, 304, 64),
    "rtx-4090-24gb": (2520, 512, 64),
    "t4-16gb": (1590, 320, 64),
    "a10-24gb": (1695, 288, 128),
    "a10g-24gb": (1710, 320, 64),
    "a40-48gb": (1740, 336, 128),
    "rtx-6000-ada-48gb": (2505, 568, 128),
    "rtx-pro-6000-96gb": (2617, 752, 128),
    "rtx-3090-24gb": (1695, 328, 64),
    "rtx-5080-16gb": (2617, 336, 64),
    "rtx-5090-32gb": (2407, 680, 64),
    "mi250x-64gb-per-gcd": (1700, 440, 128),
    "mi300x-192gb": (2100, 1216, 256),
    "mi325x-256gb": (2100, 1216, 256),
    "mi350x-288gb": (2200, 1024, 512),
    "mi355x-288gb": (2400, 1024, 512),
}


@pytest.mark.parametrize("name", CORES)
def test_flops_are_those_of_all_cores_at_boost_clock(name: str) -> None:
    """Within 0.3 %, but for the L40S, whose datasheet prints 362 TFLOP/s where its clock gives 366."""
    megahertz, cores, products = CORES[name]
    assert Gpu.named(name).bf16_gflops == pytest.approx(2 * megahertz * cores * products / 1000,
                                                        rel=0.013 if name == "l40s-48gb" else 0.003)


#: Pins of the memory, and 10^6 bit/s of one pin.
PINS = {
    "v100-32gb": (4096, 1754),
    "a100-40gb": (5120, 2430),
    "a100-80gb": (5120, 3186),
    "l4-24gb": (192, 12500),
    "l40s-48gb": (384, 18000),
    "a6000-48gb": (384, 16000),
    "rtx-4080-16gb": (256, 22400),
    "rtx-4090-24gb": (384, 21000),
    "t4-16gb": (256, 10000),
    "a10-24gb": (384, 12500),
    "a10g-24gb": (384, 12500),
    "a40-48gb": (384, 14500),
    "rtx-6000-ada-48gb": (384, 20000),
    "rtx-pro-6000-96gb": (512, 28000),
    "rtx-3090-24gb": (384, 19500),
    "rtx-5080-16gb": (256, 30000),
    "rtx-5090-32gb": (512, 28000),
    "mi250x-64gb-per-gcd": (4096, 3200),
    "mi300x-192gb": (8192, 5200),
    "mi325x-256gb": (8192, 6000),
    "mi350x-288gb": (8192, 8000),
    "mi355x-288gb": (8192, 8000),
}


@pytest.mark.parametrize("name", PINS)
def test_memory_bandwidth_is_that_of_all_pins(name: str) -> None:
    """Within 3 %: some vendors round 8.2 TB/s to 8."""
    pins, rate = PINS[name]
    assert Gpu.named(name).hbm_mb_per_s == pytest.approx(pins * rate / 8, rel=0.03)


#: Links of a GPU, and 10^6 bytes/s of one link, each direction.
LINKS = {
    "v100-32gb": (6, 25_000), "a100-40gb": (12, 25_000), "a100-80gb": (12, 25_000), "a100-pcie-80gb": (12, 25_000),
    "a800-80gb": (8, 25_000), "h100-80gb": (18, 25_000), "h100-pcie-80gb": (12, 25_000),
    "h100-nvl-94gb": (12, 25_000), "h800-80gb": (8, 25_000), "h20-96gb": (18, 25_000), "gh200-96gb": (18, 25_000),
    "h200-141gb": (18, 25_000), "b200-180gb": (18, 50_000), "gb200-186gb": (18, 50_000), "b300-270gb": (18, 50_000),
    "gb300-279gb": (18, 50_000), "a6000-48gb": (4, 14_062.5), "a40-48gb": (4, 14_062.5),
    "rtx-3090-24gb": (4, 14_062.5), "mi300x-192gb": (7, 64_000),
    "mi325x-256gb": (7, 64_000), "mi350x-288gb": (7, 76_800), "mi355x-288gb": (7, 76_800),
}


def test_links_are_all_links_in_one_direction() -> None:
    found = {gpu.name: gpu.link_mb_per_s for gpu in GPUS if gpu.link}
    assert found == {name: count * rate for name, (count, rate) in LINKS.items()}


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_entries_are_plausible(gpu: Gpu) -> None:
    assert gpu.bf16_gflops
    assert gpu.hbm_mb_per_s
    assert gpu.power_watts or gpu.name == "gh200-96gb"
    assert (gpu.link is None) == (gpu.link_mb_per_s is None) == (gpu.link_size is None) == (gpu.link_latency_ns is None)
    assert (gpu.pcie_mb_per_s is None) == (gpu.pcie_latency_ns is None)
    if gpu.link:
        assert gpu.link_mb_per_s > (gpu.pcie_mb_per_s or 0)
        assert gpu.link_size in (2, gpu.node_size, 72)
    if gpu.network:
        assert Network.named(gpu.network).name == gpu.network
    # A byte of memory takes the time of 70 to 500 operations; 37 with the H20, which was made slow on purpose.
    balance = gpu.bf16_gflops * 1000 / gpu.hbm_mb_per_s
    assert 70 < balance < 500 or gpu.name == "h20-96gb"


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_fp8_is_twice_as_fast_where_the_architecture_has_it(gpu: Gpu) -> None:
    """Ada (8.9), Hopper and Blackwell, and CDNA 3 and 4 have it. Sheets round, the one of the L40S most."""
    has = gpu.name.startswith("mi3") if not gpu.compute_capability else float(gpu.compute_capability) >= 8.9
    assert (gpu.fp8_gflops is not None) == has
    if gpu.fp8_gflops is not None:
        assert gpu.fp8_gflops == pytest.approx(2 * gpu.bf16_gflops, rel=0.013 if gpu.name == "l40s-48gb" else 0.003)


FASTER = ("v100-32gb", "a100-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "h100-80gb", "b200-180gb", "gb200-186gb")


@pytest.mark.parametrize("field", ["bf16_gflops", "power_watts"])
def test_each_of_these_is_faster_than_the_one_before(field: str) -> None:
    speeds = [getattr(Gpu.named(name), field) for name in FASTER if field == "bf16_gflops" or "h100-" not in name]
    assert speeds == sorted(set(speeds))


def test_72_gpus_have_the_bandwidth_of_the_rack() -> None:
    """NVIDIA prints 130 TB/s for the NVLinks of an NVL72, both directions, and 576 TB/s for its memory."""
    for name in ("gb200", "gb300"):
        gpu = Gpu.named(name)
        assert 72 * 2 * gpu.link_mb_per_s == pytest.approx(130_000_000, rel=0.01)
        assert 72 * gpu.hbm_mb_per_s == 576_000_000


def test_latencies_are_those_of_the_link() -> None:
    links = read("links")
    assert all(link["source"] for link in links.values())
    assert {gpu.link_latency_ns for gpu in GPUS if gpu.link == "xgmi"} == {links["xgmi"]["latency_ns"]}
    assert {gpu.pcie_latency_ns for gpu in GPUS if gpu.pcie_mb_per_s} == {links["pcie"]["latency_ns"]}


@pytest.mark.parametrize(("figures", "line"), [
    ({"bf16_gflops": 0}, "bf16_gflops = 0: must be at least 1; nearest legal: 1"),
    ({"bf16_gflops": 989.4}, "bf16_gflops = 989.4: must be an integer"),
    ({"hbm_mb_per_s": 10**9 + 1}, "hbm_mb_per_s = 1000000001: must be at most 1000000000; nearest legal: 1000000000"),
    ({"link": "nvlnk"}, "link = 'nvlnk': must be 'nvlink' or 'xgmi'"),
    ({"link": []}, "link = []: must be 'nvlink' or 'xgmi'"),
    ({"link_mb_per_s": 5}, "link = absent: must be given with link_mb_per_s"),
    ({"link": "nvlink", "link_mb_per_s": 5}, "link_size = absent: must be given with link and link_mb_per_s"),
    ({"memory_gib": ABSENT}, "memory_gib = absent: must be a number of GiB above 0 and at most 4096"),
    ({"power_watts": True}, "power_watts = True: must be an integer"),
])
def test_figures_that_are_refused(figures: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        Gpu.of({"name": "mine", "memory_gib": 80, "node_size": 8, "source": "me", "note": "", **figures})
    assert str(caught.value) == line
