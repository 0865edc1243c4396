"""Any file whatever makes a run or an InputError of one line, and does so at once."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from formats.test_formats_read import DATA, SETTINGS
from hypothesis import given
from hypothesis import strategies as st

from shardmath.errors import InputError
from shardmath.formats import Run, read
from shardmath.formats.megatron import flags
from shardmath.formats.megatron.model import FLAGS_OF
from shardmath.formats.nemo.reading import FLAG_OF, OPPOSITE

FILES = sorted(path for path in DATA.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".sh"]
FLAGS = sorted({*flags.REFUSED, *flags.UNCOUNTED, *FLAGS_OF.values(), "tensor-model-parallel-size", "bf16", "fp16",
                "pipeline-model-parallel-size", "pipeline-model-parallel-layout", "moe-layer-freq", "fp8-format",
                "recompute-granularity", "recompute-modules", "optimizer", "moe-aux-loss-coeff", "cp-comm-type",
                "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage", "tokenizer-type",
                "moe-expert-capacity-factor", "optimizer-cpu-offload", "optimizer-offload-fraction"})
KEYS = sorted({*FLAG_OF, *OPPOSITE, "model", "trainer.precision", "model.activation", "training.seq_len",
               "model.flavor", "activation_checkpoint.mode", "parallelism.pipeline_parallel_degree", "mixed_precision"})
WORDS = st.one_of(
    st.sampled_from(["0", "1", "2", "-1", "1e9", "9" * 30, "nan", "inf", "true", "false", "null", "full", "selective",
                     "block", "[0]*9999+[1]*9999", "([1]*9999)*9999", "E(t|)*99999tL", "Et*99999*99999L", "(" * 300,
                     "a2a", "hybrid", "$X", "${X:-1}", "\ue000X\ue001"]),
    st.integers().map(str), st.floats().map(str), st.text(max_size=8),
)
SHELL = st.text("AB01 \n\t'\"`$(){}[]|&;<>#=+-*/\\!?~%@:.,", max_size=120)


def outcome(folder_factory: pytest.TempPathFactory, content: bytes, suffix: str, **values: str) -> Run | InputError:
    """The run in a file of these bytes, or why there is none."""
    file = folder_factory.mktemp("formats") / f"run{suffix}"
    file.write_bytes(content)
    try:
        found: Run | InputError = read(file, values)
    except InputError as error:
        found = error
    assert str(found).isprintable()
    assert not isinstance(found, Run) or found.model.num_layers >= 1
    return found


@pytest.mark.slow
@given(st.sampled_from(FILES), st.binary(max_size=60), st.integers(0, 4000))
def test_any_damage_makes_a_run_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, file: Any, noise: bytes, place: int
) -> None:
    content = file.read_bytes()
    place %= len(content)
    outcome(tmp_path_factory, content[:place] + noise + content[place:], file.suffix)
    outcome(tmp_path_factory, content[:place], file.suffix)


@pytest.mark.slow
@given(st.sampled_from(FILES), st.dictionaries(st.sampled_from(FLAGS + KEYS), WORDS, max_size=4))
def test_any_settings_make_a_run_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, file: Any, values: dict[str, str]
) -> None:
    outcome(tmp_path_factory, file.read_bytes(), file.suffix, **{**SETTINGS.get(file.name, {}), **values})


@pytest.mark.slow
@given(SHELL, st.sampled_from(SCRIPTS))
def test_any_shell_makes_a_run_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, shell: str, file: Any
) -> None:
    outcome(tmp_path_factory, shell.encode() + b"\n" + file.read_bytes(), ".sh")


SIZES = ["tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "micro-batch-size",
         "global-batch-size", "seq-length", "num-layers", "hidden-size", "num-attention-heads", "vocab-size",
         "make-vocab-size-divisible-by", "max-position-embeddings"]
NUMBERS = st.integers(-2, 64) | st.sampled_from([2**31, 2**31 + 1, 2**62, 10**400]) | st.integers(8, 14).map(
    lambda n: 2**n)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(SIZES), NUMBERS.map(str), max_size=4), st.integers(-1, 4096))
def test_any_sizes_make_an_account_or_an_input_error(values: dict[str, str], gpus: int) -> None:
    with suppress(InputError):
        found = read(DATA / "megatron_gpt3_175b.sh", values).explain("h100-80gb", num_gpus=gpus)
        assert found.peak.total > 0


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NESTED = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["_target_", "_args_", "hidden_size", "model", "x"]), inner, max_size=3), max_leaves=6)


@pytest.mark.slow
@given(st.sampled_from(["model", "trainer", "train", "ddp", "optimizer", "mixed_precision", "MODEL_ARGS"]), NESTED)
def test_any_yaml_makes_a_run_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, section: str, value: Any
) -> None:
    content = json.dumps({section: value, "model" if section != "model" else "train": {"hidden_size": value}})
    outcome(tmp_path_factory, content.encode(), ".yaml")


@given(st.binary(max_size=200), st.sampled_from([".sh", ".toml", ".yaml", ".txt"]))
def test_any_bytes_make_an_input_error(tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str) -> None:
    assert isinstance(outcome(tmp_path_factory, content, suffix), InputError | Run)
