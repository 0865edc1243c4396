"""The lines of an account are data: component, role and moment of every term that adds up to the total of a rank."""

from __future__ import annotations

import pytest

from shardmath.account.accounting import exists
from shardmath.generated.definitions import HELD, LINES, SITES
from shardmath.symbolic.accounts import build
from shardmath.symbolic.accounts.aggregates import AGGREGATES
from shardmath.symbolic.components import all_components
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.ledger import Role

VARIANTS = (
    *IMPLEMENTATIONS.values(),
    MEGATRON.with_choices(mlp="gelu", normalisation="layer", positions="learned", biases="linear", dropout="masks"),
    MEGATRON.with_choices(layers="experts", heads="latent", schedule="interleaved", stages="uneven"),
    MEGATRON.with_choices(fp8="delayed", fp8_weights="primary", peak="saved"),
    MEGATRON.with_choices(peak="megatron_local", optimizer="muon", recompute_method="uniform"),
    MEGATRON.with_choices(peak="megatron_local", optimizer_kernel="foreach"),
    MEGATRON.with_choices(optimizer="dist_muon"),
    HUGGINGFACE.with_choices(adapters="all_linear", base_weights="nf4"),
    HUGGINGFACE.with_choices(layers="experts", balance="loss_one_hot", optimizer="adamw"),
    HUGGINGFACE.with_choices(data_parallel="deepspeed", precision="mixed"),
    HUGGINGFACE.with_choices(peak="torch", optimizer="adamw", optimizer_kernel="loop"),
)

#: Saved tensors that are left at a moment, of micro-batches that wait.
LEFT = {"stage.waiting_losses.head_backward", "stage.waiting_activations.embedding_backward",
        "stage.others_in_flight.embedding_backward"}


@pytest.mark.parametrize("implementation", VARIANTS, ids=lambda item: item.name)
def test_every_line_of_a_rank_is_there(implementation: Implementation) -> None:
    named = {name for name, term in build(implementation).terms.items()
             if name.startswith("stage.") and name.count(".") == 2 and term.unit == "bytes"}
    assert {name for name in named - LINES.keys() if not name.endswith(".all")} == set()
    assert any(name in LINES for name in named)


def test_lines_are_about_parts_of_the_model_and_their_roles() -> None:
    owners = {part.name for part in (*all_components(), *AGGREGATES)} | {"padding", "part", "buckets"}
    assert {component for component, *_ in LINES.values()} <= owners
    for name, (component, role, moment, held) in LINES.items():
        assert name.startswith(f"stage.{component}.")
        assert name.endswith(moment or role)
        assert (name in LEFT) <= (role == Role.ACTIVATION.value)
        assert (role == Role.TRANSIENT.value or name in LEFT) == (moment in SITES)
        assert held in HELD


def test_what_is_saved_is_freed_from_the_loss_to_the_layers() -> None:
    saved = {component: held for component, role, _, held in LINES.values() if role == "activation"}
    assert {name for name, held in saved.items() if held == "ALL"} == {"loss"}
    at_the_head = {name for name, held in saved.items() if held == "HEAD"}
    assert at_the_head == {"final_norm", "head", "head_copy", "score_copy", "fused_head", "mtp"}
    loss, head, layer = (f"stage.{name}.activation" for name in ("loss", "head", "attention"))
    kept = {site: [exists(term, site) for term in (loss, head, layer)] for site in (
        "loss_forward", "head_backward", "layer_backward", "optimizer_step")}
    assert kept == {
        "loss_forward": [True, True, True], "head_backward": [False, True, True],
        "layer_backward": [False, False, True], "optimizer_step": [False, False, False],
    }
    assert exists("stage.loss.loss_forward", "loss_forward")
    assert not exists("stage.loss.loss_forward", "head_backward")
    assert all(exists(f"stage.head.{role}", site) for role in ("weight", "gradient", "optimizer") for site in SITES)
