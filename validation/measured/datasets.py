"""The tables of measurements: what each one is, what is judged in it, and what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from shardmath.account.judged import OUT
from validation.measured.case import FIT, PEAK, PROCESS, RESERVED, STEADY, Case
from validation.measured.metrics import (
    Target,
    at_most,
    confusion,
    pairs,
    right_by_rule,
    share_near,
    share_within,
)
from validation.measured.sets import (
    bridge_cards,
    deepspeed_a800,
    galvatron,
    hagemann,
    huggingface,
    iseekyan,
    known_to_run,
    megatron_tests,
    mist,
    nanotron,
    one_h100,
    simumax,
    swift_examples,
    torchtitan,
    torchtune,
)

MIB = 2**20
#: No target: nothing was asked for, or the table leaves out what decides.
NO_TARGETS: Callable[[Sequence[Case]], list[Target]] = lambda cases: []  # noqa: E731


@dataclass(frozen=True)
class Dataset:
    """A table of runs.

    ``quantities`` are the measured numbers that predictions stand beside; without any, only fit or out of
    memory is judged. ``listed``: whether the document shows every row. ``targets`` are worked out from cases
    that have an estimate; it is not called without any.
    """

    name: str
    title: str
    table: str
    about: str
    read: Callable[[], tuple[Case, ...]]
    quantities: tuple[str, ...]
    listed: bool
    targets: Callable[[Sequence[Case]], list[Target]]


@cache
def cases_of(dataset: Dataset) -> tuple[Case, ...]:
    """Return the rows of a table, read once: an estimate is kept for a row itself, not for an equal one."""
    return dataset.read()


def _simumax(cases: Sequence[Case]) -> list[Target]:
    dense = [case for case in cases if case.group == simumax.DENSE]
    goals = [at_most("dense, every stage", [pair.error for pair in pairs(dense, PEAK)], 0.002, 0.005)] if dense else []
    experts = [case for case in cases if case.group == simumax.EXPERTS]
    if experts:
        goals.append(at_most("experts, every stage", [pair.error for pair in pairs(experts, PEAK)], 0.002, 0.005))
    return goals


def _megatron(cases: Sequence[Case]) -> list[Target]:
    dense = [case for case in cases if case.group == megatron_tests.DENSE]
    if not dense:
        return []
    steady = [pair.difference for pair in pairs(dense, STEADY)]
    return [at_most("dense, peak", [pair.error for pair in pairs(dense, PEAK)], 0.025),
            share_within("dense, between steps", steady, 250 * MIB, 0.95)]


def _nanotron(cases: Sequence[Case]) -> list[Target]:
    known = pairs(cases, RESERVED)
    few = [pair.error for pair in known if pair.case.group in nanotron.WITH_TARGET]
    alone = [pair.error for pair in known if pair.case.group == nanotron.WITH_TARGET[0]]
    return [
        *([at_most("TP 1: reserved", alone, 0.015)] if alone else []),
        *([at_most("TP 1 and 2: reserved", few, 0.03), share_near("TP 1 and 2: reserved", few, 0.1, 0.93)]
          if few else []),
    ]


def _torchtitan(cases: Sequence[Case]) -> list[Target]:
    eager = [pair.error for pair in pairs(cases, RESERVED) if pair.case.group == torchtitan.BF16]
    return [at_most("eager: reserved", eager, 0.05)] if eager else []


def _cards(cases: Sequence[Case]) -> list[Target]:
    known = [pair for quantity in (PEAK, STEADY) for pair in pairs(cases, quantity)]
    far = [pair for pair in known if abs(pair.error) > bridge_cards.NEAR]
    unnamed = [pair for pair in far if pair.case.id not in bridge_cards.BEYOND]
    reached = f"{len(known) - len(far)} of {len(known)} within, {len(far)} named, {len(unnamed)} not"
    return [Target("allocated", f"each within {bridge_cards.NEAR:.0%}, or named", reached, not unnamed)]


def _hagemann(cases: Sequence[Case]) -> list[Target]:
    share = right_by_rule(confusion(cases))
    return [Target("fit or out of memory by the 80 % rule", "90 % right", f"{share:.1%}", share >= 0.9)]


def _known(cases: Sequence[Case]) -> list[Target]:
    covered = [case for case in cases if case.group == known_to_run.COVERED]
    if not covered:
        return []
    out = confusion(covered)[OUT, FIT]
    return [Target("pre-training of a covered model", "none above the memory", f"{out} of {len(covered)}", not out)]


DATASETS: tuple[Dataset, ...] = (
    Dataset(
        "simumax", "SimuMax on B200", simumax.TABLE,
        """Megatron-LM (core 0.14, commit 23e00ed0) with Transformer Engine 2.11 on 8 B200: parts of Llama 3 70B and
        3.1 405B, DeepSeek-V2 and V3, one micro-batch of one sequence. Measured is `torch.cuda.max_memory_allocated`
        of every GPU after three iterations, to the byte; a stage is its fullest GPU.""",
        simumax.read, (PEAK,), True, _simumax,
    ),
    Dataset(
        "megatron_tests", "Megatron-LM's functional tests on A100", megatron_tests.TABLE,
        """Small models that Megatron-LM trains in its own tests; its repository keeps the memory of every step. The
        rank that writes is the last pipeline rank. Flags are those of each test's `model_config.yaml` when its
        values were written. *Peak* is the largest of all steps, *between steps* what is allocated after a step.""",
        megatron_tests.read, (PEAK, STEADY), False, _megatron,
    ),
    Dataset(
        "nanotron", "nanotron on H100 (Ultra-Scale Playbook)", nanotron.TABLE,
        """Two models, 1 to 64 nodes, every layout of TP, PP and DP with and without ZeRO-1. The numbers are the
        *reserved* memory of world rank 0, on the first pipeline rank: nanotron resets its peaks after the passes of
        every step, so that its allocated peak has no activations, which these numbers have. Stages share out
        computation, not layers. Which of the two modes of tensor parallelism a run had is not in the table: with
        *reduce-scatter* the norms are sharded, with *all-reduce* they are not. Predicted is what PyTorch's allocator
        reserves when two steps are replayed; what is allocated is compared with counts from nanotron's own modules.""",
        nanotron.read, (RESERVED,), False, _nanotron,
    ),
    Dataset(
        "torchtitan", "torchtitan on H100 and H200", torchtitan.TABLE,
        """Llama 3.1 8B with FSDP2. The tables give *reserved* memory, which the allocator takes from the GPU and
        which grows into what there is. Predicted is what it reserves when two steps are replayed. The order of
        temporaries inside of a compiled layer is taken to be that of one that is not compiled.""",
        torchtitan.read, (RESERVED,), True, _torchtitan,
    ),
    Dataset(
        "huggingface", "Transformers on one H100", huggingface.TABLE,
        """Training steps of models with random weights in bf16, AdamW with fused kernels, no other process on the GPU:
        `validation/programs/on_gpu.py`, which needs torch and transformers alone. The loss is kept and the logits are
        freed before the backward pass. Peaks are those of `torch.cuda.max_memory_allocated` and
        `max_memory_reserved` after three to five steps. Reserved memory is replayed where the order of allocations is
        known; elsewhere it stands against allocated memory.""",
        huggingface.read, (PEAK, RESERVED), True, NO_TARGETS,
    ),
    Dataset(
        "one_h100", "Megatron-Core and FSDP2 on one H100", one_h100.TABLE,
        """Training steps of Megatron-Core's local layers without Transformer Engine and Apex, and of Transformers under
        FSDP2 with fp32 shards, of models with random weights and no other process on the GPU:
        `validation/programs/megatron_on_gpu.py`. The table is of 26 November 2026. Because of it the ledger got the
        optimizer that works on lists of tensors, which equals Megatron-Core's own step on a CPU; nothing was fitted.
        Peaks are those of `max_memory_allocated` and `max_memory_reserved` after the first step. Reserved
        memory of Megatron-Core's dense steps and of FSDP2 is replayed; experts of Megatron-Core's local layers have no
        order of allocations in the ledger, so theirs is that of the [formula](#reserved-memory-by-a-formula).""",
        one_h100.read, (PEAK, RESERVED), True, NO_TARGETS,
    ),
    Dataset(
        "iseekyan", "A small Mixtral (mbridge)", iseekyan.TABLE,
        """Four layers of a Mixtral with 8 experts of width 5440 on 8 GPUs, experts computed one by one. Given with
        two digits, without version or flags. No target.""",
        iseekyan.read, (PEAK,), True, NO_TARGETS,
    ),
    Dataset(
        "deepspeed_a800", "Transformers with DeepSpeed on A800", deepspeed_a800.TABLE,
        """Llama 7B on eight A800 in stages 2 and 3 of ZeRO, sequences of 4,096 tokens: a public table of
        `torch.cuda.max_memory_allocated` with DeepSpeed 0.14.2 and PyTorch 2.2, read as GiB with one digit. It says
        neither the version of Transformers nor its kernels of attention, nor at which step it was measured. They are
        taken as today's, whose loss makes other copies of the logits. A further sequence needs 5.0 GiB in stage 2 and
        3.1 in stage 3, which is not explained. Nothing is fitted, and there is no target. Not usable are the tables of
        LitGPT: they are of layers and losses of its own, which no implementation here has.""",
        deepspeed_a800.read, (PEAK,), True, NO_TARGETS,
    ),
    Dataset(
        "torchtune", "torchtune's README and tutorials", torchtune.TABLE,
        """Peaks that torchtune's README has had since May 2024, those of its tutorials, and two of a pull request, with
        the settings of the recipes at the commit that first stated each, as shardmath's own reader takes them: modules
        of Transformers, and the loss that each recipe names, compiled or not. Rows before September 2024 have the loss
        of their releases, which cut off the last token's logits and held the rest. States of paged optimizers lie in
        managed memory, which PyTorch's allocator does not count, so they are left out. torchtune's code differs further
        (read at those commits): keys and values are repeated for all query heads and kept so. Units are those of its
        log, 10⁹ bytes until [August 2024](https://github.com/meta-pytorch/torchtune/commit/d0b89e206) and GiB from then
        on, whatever a table calls them; of the three numbers of a log they are taken as what is allocated. A figure
        counts where all that decides is said: most recipes train on sequences of unstated lengths. Nothing is fitted,
        and there is no target.""",
        torchtune.read, (PEAK,), True, NO_TARGETS,
    ),
    Dataset(
        "mist", "Stages of Mist on L4", mist.TABLE,
        f"""Peaks of `torch.cuda.max_memory_allocated` that the [artifact of Mist](https://github.com/Dazz993/Mist)
        (EuroSys 2025, commit {mist.COMMIT[:10]}) expects of its tuned layouts of GPT and Llama on one node of L4, by
        pipeline stage: fp16 weights and gradients, fp32 states, one micro-batch after another. Its layers are like
        those of Megatron-Core, and are read as these with saved tensors alone: its moments of a step are its own.
        Stages recompute different numbers of layers, so every stage is a row. Beside a stage that recomputes, other
        stages are made up: that changes nothing of it, but its verdict is that of another run. Reserved memory of first
        stages, the fullest ones of whole runs, is that of the [formula](#reserved-memory-by-a-formula). Nothing is
        fitted, and there is no target.""",
        mist.read, (PEAK, RESERVED), True, NO_TARGETS,
    ),
    Dataset(
        "galvatron", "Layers of Llama 2 7B profiled by Galvatron", galvatron.TABLE,
        f"""[What Galvatron's profiler wrote down]({galvatron.SOURCE}) (commit {galvatron.COMMIT[:10]}) of one to four
        layers on eight GPUs, eight sequences of 2,048 tokens in one micro-batch: the most that is allocated in both
        passes, without the optimizer step. The GPU is not said. It runs layers like Megatron-Core's in FSDP1 with fp32
        shards, which none of the implementations here does: they are read as torchtitan's, with FSDP2 and, on ranks
        with tensor parallelism, a vocabulary that is split too. Nothing is fitted, and there is no target.""",
        galvatron.read, (PEAK,), True, NO_TARGETS,
    ),
    Dataset(
        "bridge_cards", "Megatron-Bridge's model cards", bridge_cards.TABLE,
        f"""Runs on H100 that the [model verification cards](https://github.com/NVIDIA-NeMo/Megatron-Bridge/tree/{
        bridge_cards.COMMIT[:10]}/examples/model_verification_cards) and skills of Megatron-Bridge state, with the
        settings of the recipes that they name, as shardmath's own reader follows them at the commit of the run; one
        row is of a [pull request](https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/3880) of the same authors.
        Numbers are in units of 10⁹ bytes, as the program logs them, though most cards call them GiB. Skills say
        `memory allocated` of runs with a part of the optimizer on the host: that is what is there between steps. Most
        rows do not say of which rank they are, so all stand against the fullest. Two rows of the ledger are there
        because of this table: norms' outputs that frozen layers of Transformer Engine keep beside adapters, and fp32
        weights that stay on the GPU where Megatron-Bridge moves the optimizer. Both stand in the programs' code,
        where they were looked for when rows were off. Nothing is fitted.""",
        bridge_cards.read, (PEAK, STEADY, RESERVED), True, _cards,
    ),
    Dataset(
        "swift_examples", "Example scripts of ms-swift", swift_examples.TABLE,
        """Many scripts under `examples` of ms-swift begin with the memory of a GPU, in whole GiB (*GB* is read as
        GiB), and the seconds of an iteration. A row has the settings of its script at the commit that first stated
        the figure: some scripts changed since and kept it. Libraries of that time differ from today's where the table
        says so: until Transformers 4.54 AdamW was PyTorch's with a temporary for every parameter. A figure is read as
        the memory of the process, though a trainer's log has reserved memory, half a GiB to one less. A GPU is an
        A100 of 80 GB where the script names none. *Packed* rows have full sequences; others are shorter than
        `max_length`, for which they are predicted: of these a prediction is the most. Figures that are the memory of
        a card are no measurement, and only the verdict is judged. Not in the table are models of images, rollouts,
        and pairs and rewards of Megatron-Core. No target, and nothing is fitted.""",
        swift_examples.read, (PROCESS,), True, NO_TARGETS,
    ),
    Dataset(
        "hagemann", "Fit or out of memory: Hagemann et al. 2023", hagemann.TABLE,
        """Llama 13B with a vocabulary of 128,000 tokens on 32 to 128 A100-80GB (arXiv:2311.05610): which layouts
        trained, which ran out of memory. Vocabulary and batch follow from the table's own step times and MFU. The
        framework gathers the logits over tensor-parallel ranks before an fp32 loss.""",
        hagemann.read, (), False, _hagemann,
    ),
    Dataset(
        "known_to_run", "Layouts that are known to run", known_to_run.TABLE,
        """Recipes that NVIDIA recommends for NeMo on H100, B200 and GB200, and Llama 3.1 405B as Meta trained it. They
        run, so none of them may be above the memory of its GPU. FP8 recipes of SwiGLU models are estimated in FP8
        (delayed scaling, FP8 weights, NeMo's defaults) where that is counted for their layout; others as if they were
        bf16. Multi-token prediction is counted with Megatron-Core's own loss, which keeps more than that of
        Transformer Engine.""",
        known_to_run.read, (), False, _known,
    ),
)
