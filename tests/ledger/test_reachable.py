"""A row is one of a framework if one of its programs keeps it: those that tests count are, others are refused."""

from __future__ import annotations

import pytest
from reachable import is_reachable, programs

from shardmath.catalogue.code import oracle_of
from shardmath.symbolic.components import all_components
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON, TORCHTITAN, Implementation
from shardmath.symbolic.ledger import Component, Tensor

pytestmark = pytest.mark.slow

ROWS: dict[str, tuple[Component, Tensor]] = {
    f"{component.name}.{tensor.name}": (component, tensor)
    for component in all_components() for tensor in component.tensors}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_programs_keep_every_row_that_a_test_counts(name: str) -> None:
    counted = [row for row in ROWS if oracle_of(name, row)]
    assert counted
    assert [row for row in counted if not is_reachable(IMPLEMENTATIONS[name], *ROWS[row])] == []


@pytest.mark.parametrize(("implementation", "row", "is_there"), [
    (MEGATRON, "mtp.projection.weight", True),
    (HUGGINGFACE, "mtp.projection.weight", False),  # Transformers makes no modules of further predictions
    (TORCHTITAN, "mtp.projection.weight", False),
    (HUGGINGFACE, "embedding_norm.mean", True),  # BLOOM
    (HUGGINGFACE, "embedding_norm.rms", False),
    (HUGGINGFACE, "loss.logits_fp32", True),
    (HUGGINGFACE, "gelu.erf_argument", True),
    (HUGGINGFACE, "shared_experts.gate_up.weight", True),
    (HUGGINGFACE, "latent_attention.q_norm.bias", False),
    (TORCHTITAN, "padded_experts.last_places", True),  # with saved tensors alone, as moments are counted without EP
    (TORCHTITAN, "attention.checkpoint.q", False),
])
def test_a_row_is_there_if_a_program_keeps_it(implementation: Implementation, row: str, is_there: bool) -> None:
    assert is_reachable(implementation, *ROWS[row]) is is_there


def test_transformers_has_no_loss_of_other_frameworks() -> None:
    with pytest.raises(ValueError, match=r"not counted yet: loss = vocab_parallel in Hugging Face"):
        HUGGINGFACE.with_choices(loss="vocab_parallel")


def test_model_classes_decide_the_kernels_of_their_layers() -> None:
    ropes = {domain["rope"] for domain in programs("huggingface")}
    assert ("shared",) in ropes
    assert all(len(options) == 1 for options in ropes)
    assert all(domain["norm"][-1] == "fused" for domain in programs("huggingface"))  # that of Liger
