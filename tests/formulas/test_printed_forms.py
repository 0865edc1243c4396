"""Every form of every term, in every notation, is read back and computes the term's exact value."""

from __future__ import annotations

from itertools import pairwise

import pytest
from exact_points import Points
from options import with_option
from oracles.extent import FULL
from printed_notations import notations

from shardmath.symbolic.choices import AXES
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON, TORCHTITAN, Implementation
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.published import PublishedSet, all_published
from shardmath.symbolic.simplify import Step, derivation
from shardmath.symbolic.terms import TermSet
from shardmath.symbolic.timing import build_all

#: Choices that bring other terms and other forms.
_GPT = {"normalisation": "layer", "mlp": "gelu", "positions": "learned", "biases": "linear", "dropout": "masks"}
_VARIANTS = (
    MEGATRON.with_choices(layers="experts", heads="latent", scores="sigmoid", balance="bias"),
    MEGATRON.with_choices(**_GPT),
    MEGATRON.with_choices(fp8="block", fp8_weights="primary", peak="saved"),
    HUGGINGFACE.with_choices(adapters="all_linear", base_weights="nf4"),
)
_MORE_VARIANTS = (
    MEGATRON.with_choices(layers="experts", balance="loss"),
    MEGATRON.with_choices(schedule="interleaved", stages="uneven", optimizer="muon"),
    HUGGINGFACE.with_choices(layers="experts", dispatch="huggingface", router="huggingface"),
    HUGGINGFACE.with_choices(data_parallel="deepspeed", precision="mixed"),
    TORCHTITAN.with_choices(schedule="zbv", pipeline="torch", reshard="never"),
)

def every_option() -> list[Implementation]:
    """Change one choice of one implementation at a time, wherever there are formulas for it."""
    found = []
    for item in IMPLEMENTATIONS.values():
        for axis in AXES:
            for option in item.options(axis.name):
                changed = with_option(item, axis, option)
                try:
                    build_all(changed)
                except ValueError:
                    continue
                found.append(changed)
    return found


CASES = [*IMPLEMENTATIONS.values(), *_VARIANTS, *((*_MORE_VARIANTS, *every_option()) if FULL else ())]
EVERY_CASE = pytest.mark.parametrize("case", dict.fromkeys(CASES), ids=lambda item: item.name)


def check(steps: dict[str, tuple[Step, ...]], terms: TermSet, fixed: dict[str, int]) -> None:
    """Compare every form in every notation: with the term where values belong together, with itself where they do not.

    A step that changes nothing that is printed would be no step.
    """
    points = Points(terms, fixed)
    for notation in notations(terms.terms.values()):
        for name, forms in steps.items():
            exact = points.of(terms[name].symbol)[:points.together]
            texts = [notation.printed(step.expression) for step in forms]
            assert all(before != after for before, after in pairwise(texts)), (name, texts)
            for step, text in zip(forms, texts, strict=True):
                column = points.read(notation.read(text))
                assert column[:points.together] == exact, (name, step.rule, text)
                assert column == points.of(step.expression), (name, step.rule, text)


@pytest.mark.slow
@EVERY_CASE
def test_every_form_computes_the_term_and_changes_the_one_before(case: Implementation) -> None:
    """Of a variant those are tried that are not, form by form, those of its implementation, which is tried too."""
    terms, fixed = build_all(case), fixed_values(case)
    steps = {name: derivation(terms, name, fixed) for name in terms.terms}
    plain = IMPLEMENTATIONS[case.name.partition("_")[0]]
    if case is not plain and not FULL:
        others = build_all(plain)
        steps = {name: forms for name, forms in steps.items()
                 if name not in others or forms != derivation(others, name, fixed_values(plain))}
        assert steps
    check(steps, terms, fixed)


@pytest.mark.parametrize("item", all_published(), ids=lambda item: item.name)
def test_published_formulas_compute_the_term(item: PublishedSet) -> None:
    check({name: derivation(item.terms, name, {}) for name in item.terms.terms}, item.terms, {})
