"""PyTorch's pipelines with FSDP2 in real processes: whole gradients, whole parameters and buffers of every rank.

Four processes are two stages with two shards each. Just before the gradients of a rank's last chunk are reduced, the
sums of all chunks that PyTorch reduces together exist in fp32, and their parameters are gathered in bf16.
"""

from __future__ import annotations

from pathlib import Path

from oracles.instruments.processes import on_ranks
from oracles.pipelines.pipeline_run import TOKENS, WIDTH
from oracles.pipelines.stage_run import run_all

STAGES, RANKS = 2, 4
#: Schedule, micro-batches, chunks per rank, layers of a chunk.
CASES = [("1f1b", 4, 1, 2), ("gpipe", 3, 1, 1), ("interleaved", 4, 2, 1), ("dualpipev", 5, 2, 1)]


def test_what_every_rank_keeps_between_micro_batches(tmp_path: Path) -> None:
    found = on_ranks(run_all, RANKS, tmp_path, [(case[0], STAGES, *case[1:]) for case in CASES])
    for results in found:
        for (schedule, m, chunks, _), result in zip(CASES, results, strict=True):
            place, parameters = result["place"], result["parameters"]
            folded = schedule == "dualpipev"
            first = int(place == 0)
            last = int(place == (0 if folded else STAGES - 1))
            assert result["buffers"] == m * (2 * chunks - first - last) * TOKENS * WIDTH * 2, (schedule, place)
            assert result["sums"] == 4 * parameters, (schedule, place)
            assert result["gathered"] == 2 * parameters, (schedule, place)
            assert result["gradients"] * (RANKS // STAGES) == 4 * parameters, (schedule, place)
