"""A toy pipeline with FSDP2 that really runs, and what a rank keeps of it meanwhile: the program of each process."""

from __future__ import annotations

from typing import Any

from oracles.pipelines.sharded_pipeline import sharded_pipeline


def run(rank: int, schedule: str, stages: int, micro_batches: int, chunks: int, layers: int) -> dict[str, int]:
    """Train a step and half of another one; return bytes before the last chunk's gradients are reduced.

    ``sums`` are whole gradients, ``gathered`` whole parameters, ``buffers`` those for what is received, of all
    chunks of the rank; ``gradients`` are what is left of gradients after the step.
    """
    parts, of_rank, place, step = sharded_pipeline(schedule, stages, micro_batches, chunks, layers)
    found: dict[str, int] = dict.fromkeys(("sums", "gathered"), 0)

    def watched(reduce: Any) -> Any:
        def before(*arguments: Any) -> None:
            for name, count in _unsharded(parts).items():
                found[name] = max(found[name], count)
            reduce(*arguments)
        return before

    for stage in of_rank:
        stage.perform_reduce_grad = watched(stage.perform_reduce_grad)  # type: ignore[method-assign]
    step()
    infos = [info for stage in of_rank for received in (stage.args_recv_info, stage.grad_recv_info)
             for each in received.values() for info in each]
    return {
        **found,
        "place": place,
        "buffers": sum(info.buffer.untyped_storage().nbytes() for info in infos if info.buffer is not None),
        "gradients": sum(one.grad.to_local().numel() * 4 for part in parts for one in part.parameters()),
        "parameters": sum(one.numel() for part in parts for one in part.parameters()),
    }


def _unsharded(parts: list[Any]) -> dict[str, int]:
    """Bytes of whole gradients and whole parameters that are there now."""
    groups = [module._get_fsdp_state()._fsdp_param_group for part in parts for module in part.modules()
              if hasattr(module, "_get_fsdp_state")]
    kept = [one for group in groups if group is not None for one in group.fsdp_params]
    sums = [one.unsharded_accumulated_grad for one in kept]
    return {
        "sums": sum(one.numel() * one.element_size() for one in sums if one is not None),
        "gathered": sum(one.untyped_storage().nbytes() for each in kept for one in each.all_gather_outputs),
    }


def run_all(rank: int, cases: list[list[Any]]) -> list[dict[str, int]]:
    """Run one case after another on this rank."""
    return [run(rank, *case) for case in cases]
