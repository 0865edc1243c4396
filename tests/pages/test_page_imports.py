"""Tables of flags and keys that the page reads pasted files by, beside the readers of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmath.commands.page.imports import flag_data
from shardmath.formats.readers import read

SCRIPTS = sorted((Path(__file__).parents[1] / "data" / "formats").glob("megatron_*.sh"))
#: Variables of the scripts without which the commands do not count them.
VALUES = {"megatron_deepseek_v3": {"USE_MEGATRON_FSDP": "0"}}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_flag_of_a_script_has_the_place_that_the_commands_give_it(script: Path) -> None:
    pytest.importorskip("tree_sitter")
    run, flags = read(script, VALUES.get(script.stem)), flag_data()
    taken = {*flags["elsewhere"], *flags["sizes"].values(), *flags["switches"].values()}
    known = {*taken, *flags["idle"], *flags["uncounted"], *flags["refused"]}
    assert {flag.removeprefix("--") for flag in run.understood} <= taken
    assert {flag.removeprefix("--") for flag in run.without_effect} <= known
    assert not {flag.removeprefix("--") for flag in run.unknown} & known
