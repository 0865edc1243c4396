"""A symbol may be named by its letter wherever it may be named by its long name."""

from __future__ import annotations

import pytest

import shardmath
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import long_name
from shardmath.search.spaces import Best, Constraint, Space

JOB = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "tensor_parallel": 4, "num_gpus": 16, "global_batch_size": 64}


def test_every_letter_has_one_long_name() -> None:
    assert len({row[0] for row in PARAMETERS.values()}) == len(PARAMETERS)
    assert all(long_name(row[0]) == name == long_name(name) for name, row in PARAMETERS.items()
               if row[0] not in PARAMETERS)


@pytest.mark.slow
def test_sensitivities_take_letters() -> None:
    moves = shardmath.moves(**JOB)
    assert moves.formulas("c") == moves.formulas("context_parallel")
    with pytest.raises(InputError, match="formula = 'cc'"):
        moves.formulas("cc")


@pytest.mark.slow
def test_fit_takes_letters() -> None:
    assert shardmath.fit(**JOB, solve="b").to_dict() == shardmath.fit(**JOB, solve="micro_batch_size").to_dict()


@pytest.mark.slow
def test_spaces_take_letters_in_formulas() -> None:
    explored = [
        shardmath.explore(Space(
            {degree: (1, 2, 4, 8), "pipeline_parallel": (1, 2, 4)}, "llama-3.2-1b", "h100-80gb",
            fixed={"num_gpus": 64, "global_batch_size": 64}, constraints=(Constraint("small", condition),),
            questions=(Best("least", (formula,)),),
        ))
        for degree, condition, formula in (
            ("t", "t * p <= 8", "peak * t"),
            ("tensor_parallel", "tensor_parallel * pipeline_parallel <= 8", "peak * tensor_parallel"),
        )
    ]
    assert explored[0].to_dict() == explored[1].to_dict()
    assert next(item.count for item in explored[0].broken if item.name == "small") > 0
