"""Bash scripts are read as bash would read them, without being run."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.errors import InputError
from shardmath.formats.scripts.expansion import marked, unmarked
from shardmath.formats.scripts.launch import flags_of, launch_of
from shardmath.formats.scripts.shell import read_script

LAUNCH = "--num-layers 1"
NAMES = st.sampled_from(["A", "B", "TP", "LIST"])
PLAIN = st.text("ab1 -", max_size=6)
#: Right sides of assignments and words, that bash takes without a change of the file system or a command.
WORDS = st.one_of(
    st.from_regex(r"\A[ab1\-]{1,5}\Z"),
    PLAIN.map(lambda text: f'"{text}"'), PLAIN.map(lambda text: f"'{text}'"),
    NAMES.map(lambda name: f"${{{name}}}"), NAMES.map(lambda name: f'"${{{name}}}"'),
    NAMES.map(lambda name: f"${{{name}:-x y}}"), NAMES.map(lambda name: f'"${{{name}:+z}}"'),
    st.tuples(NAMES, NAMES).map(lambda pair: f'"${{{pair[0]}}} \\\n  ${{{pair[1]}[@]}} \\\n"'),
    NAMES.map(lambda name: f"${{{name}[@]}}"), NAMES.map(lambda name: f'"${{{name}[@]}}"'),
    st.tuples(NAMES, NAMES).map(lambda pair: f'x${{{pair[0]}}}"${{{pair[1]}}}"'),
    st.tuples(st.integers(0, 99), st.sampled_from("+-*/%"), st.integers(1, 9)).map(
        lambda sum_: f"$(({sum_[0]} {sum_[1]} {sum_[2]}))"),
    st.tuples(st.integers(-9, 99), *[st.sampled_from(["+", "-", "\\*", "/", "%"]), st.integers(1, 9)] * 2).map(
        lambda sum_: f"$(expr {' '.join(map(str, sum_))})"),
)
ARRAYS = st.lists(WORDS, max_size=3).map(lambda words: f"({' '.join(words)})")
ASSIGNMENTS = st.tuples(NAMES, st.sampled_from(["=", "+="]), WORDS | ARRAYS).map("".join)
TESTS = st.one_of(
    st.tuples(NAMES, st.sampled_from(["==", "!="]), st.from_regex(r"\A[ab1]{1,3}\Z")).map(
        lambda parts: f'[[ "${{{parts[0]}}}" {parts[1]} "{parts[2]}" ]]'),
    st.tuples(st.sampled_from(["-z", "-n"]), NAMES).map(lambda parts: f'[ {parts[0]} "${{{parts[1]}}}" ]'),
    st.tuples(st.integers(0, 3), st.sampled_from(["-eq", "-lt", "-ge"]), st.integers(0, 3)).map(
        lambda parts: f"[ {parts[0]} {parts[1]} {parts[2]} ]"),
)
STATEMENTS = st.one_of(
    ASSIGNMENTS,
    st.tuples(TESTS, ASSIGNMENTS, ASSIGNMENTS).map(lambda s: f"if {s[0]}; then\n  {s[1]}\nelse\n  {s[2]}\nfi"),
    st.tuples(TESTS, st.sampled_from(["&&", "||"]), ASSIGNMENTS).map(" ".join),
    st.tuples(ASSIGNMENTS, ASSIGNMENTS).map(" ".join),
    st.tuples(NAMES, ASSIGNMENTS, ASSIGNMENTS).map(
        lambda s: f'case "${{{s[0]}}}" in\n a*) {s[1]} ;;\n *) {s[2]} ;;\nesac'),
)


def words_of(script: str) -> list[str]:
    """The words after the program of the last training command."""
    command = [found for found in read_script("script", script, {}).commands if "p.py" in found][-1]
    return command[command.index("p.py") + 1:]


@pytest.mark.slow
@given(st.lists(STATEMENTS, max_size=6), st.lists(WORDS, min_size=1, max_size=4))
def test_words_are_those_of_bash(statements: list[str], words: list[str]) -> None:
    script = "\n".join(["A=a", 'B="b b"', "TP=1", "LIST=(a 'b b')", *statements])
    shown = f"{script}\nprintf '%s\\0' {' '.join(words)}"
    ran = subprocess.run(["bash", "--norc", "-c", shown], capture_output=True, text=True, check=True, env={})
    expected = ran.stdout.split("\0")[:-1]
    if not expected or expected == [""]:
        return  # printf prints an empty word for none
    assert words_of(f"{script}\npython p.py {' '.join(words)}") == expected


@pytest.mark.parametrize(("script", "words"), [
    ("X=${1:-4}; python p.py --tp $X", ["--tp", "4"]),
    ("A=(--tp 2 # two\n  --pp 3)\npython p.py ${A[@]}", ["--tp", "2", "--pp", "3"]),
    ('A=("--fp8 x")\npython p.py ${A[@]}', ["--fp8", "x"]),
    ('A=("--fp8 x")\npython p.py "${A[@]}"', ["--fp8 x"]),
    ('A=(--a 1)\nsrun bash -c "python p.py ${A[*]} --b 2"', ["--a", "1", "--b", "2"]),
    ("A=(--a --b)\nI=1\npython p.py ${A[$I]} ${A[$((I - 1))]} ${A[-1]}", ["--b", "--a", "--b"]),
    ('O=" --a 1 \\\n  --b 2"\npython p.py $O', ["--a", "1", "--b", "2"]),
    ('A=(--a 1); B=(--b 2)\nC="python p.py ${A[@]} \\\n  ${B[@]} \\\n  --c $((1+2)) \\\n  $((3+4))"\nsrun bash -c "$C"',
     ["--a", "1", "--b", "2", "--c", "3", "7"]),
    ("X=1 Y=2\necho $Z; python p.py --a $X --b $Y", ["--a", "1", "--b", "2"]),
    ('C="python p.py --a 1"; eval $C', ["--a", "1"]),
    ('C="python p.py --a 1"; srun --mpi=pmix bash -c "${C}"', ["--a", "1"]),
    ("C='python p.py --a 1'\nsbatch <<EOF\nsrun bash -c \"${C}\" | tee log\nEOF", ["--a", "1"]),
    ("run() { python p.py --a $1; }\nrun 7", ["--a", "7"]),
    ("X=1 Y=2 python p.py --a 1 2>&1 | tee log", ["--a", "1"]),
    ("python p.py --a 1 && echo done", ["--a", "1"]),
    ("if [ -z $UNSET ]; then X=1; fi; python p.py --a $X", ["--a", "1"]),
    ("G=8; N=2; python p.py --a $(expr 64 / $G / $N) --b=`expr 2 \\* 3 - 5 % 3`", ["--a", "4", "--b=4"]),
])
def test_what_launch_scripts_do(script: str, words: list[str]) -> None:
    assert words_of(script) == words


def test_what_is_not_known_keeps_its_name() -> None:
    found = words_of('D=$(date)\npython p.py --save $1/x --tp ${TP} --name "$D"')
    assert [marked(word) for word in found] == [(), ("1",), (), ("TP",), (), ("$(...)",)]
    assert [unmarked(word) for word in found] == ["--save", "${1}/x", "--tp", "${TP}", "--name", "$(...)"]


@pytest.mark.parametrize("command", [
    "expr", "expr 1 +", "expr 1 / 0", "expr $X + 1", "expr a : b", "date", "expr 1 | cat",
])
def test_sums_that_are_not_known(command: str) -> None:
    assert [marked(word) for word in words_of(f"python p.py $({command})")] == [("$(...)",)]


def test_values_that_are_given_win() -> None:
    script = read_script("script", "TP=2\npython p.py --tp $TP $1", {"TP": "4", "1": "data"})
    assert script.commands == [["python", "p.py", "--tp", "4", "data"]]


@pytest.mark.parametrize(("branches", "choices"), [
    ("if [ $SIZE = 7B ]; then N=32; H=4096; elif [ $SIZE == 13B ]; then N=40; fi", {"N": ["7B", "13B"], "H": ["7B"]}),
    ('if [[ "$SIZE" == "7B" ]]; then N=32; fi; if [ $SIZE = 1B ]; then N=16; fi', {"N": ["7B", "1B"]}),
    ("case ${SIZE} in\n 7B) N=32 ;;\n 13B|14B) N=40 ;;\n *x) N=1 ;;\nesac", {"N": ["7B", "13B"]}),
    ("if [ $SIZE = 7B ]; then N=32; else N=1; fi", {"N": ["7B"]}),
    ("if [ x$SIZE = x7B ]; then N=32; fi; if [ $SIZE != 7B ]; then echo; fi; if [ $SIZE -gt 1 ]; then N=2; fi", {}),
    ("if [ $SIZE = $OTHER ]; then N=32; fi; if [ $(date) = 7B ]; then N=2; fi", {}),
    ("SIZE=13B; if [ $SIZE = 7B ]; then N=32; fi", {}),
])
def test_words_that_an_unset_variable_may_be(branches: str, choices: dict[str, list[str]]) -> None:
    text = branches if branches.startswith("SIZE=") else f"SIZE=$4\n{branches}"
    script = read_script("script", f"{text}\npython p.py --n $N", {})
    assert script.choices == {name: ("4", words) for name, words in choices.items()}
    if choices:
        assert read_script("script", f"{text}\npython p.py --n $N", {"4": "7B"}).variables["N"] == "32"


def test_what_is_left_out_is_said() -> None:
    text = "for i in 1 2; do X=$i; done\nif [ -f file ]; then X=1; fi\nsource other.sh\npython p.py"
    assert read_script("script", text, {}).notes == [
        "line 1: this loop is not followed", "line 2: the condition of this is not decided, so it is left out",
        "line 3: source other.sh is not followed",
    ]


def test_no_command_is_run(tmp_path: Path) -> None:
    file = tmp_path / "made"
    read_script("script", f"touch {file}; X=$(touch {file}); `touch {file}`; eval 'touch {file}'", {})
    assert not file.exists()


@pytest.mark.parametrize("script", [
    "A=" + "x" * 1000 + "\n" + 'A="$A$A"\n' * 40 + "python p.py $A",
    "A=(a b)\n" + 'A+=("${A[@]}" "${A[@]}")\n' * 40,
    "A=" + "x" * 60000 + "\npython p.py " + "$A" * 2000,
    "f() { f; f; }\nf",
    "((" * 2000,
    "python p.py " + "$(" * 3000,
    "X=$((" + "(" * 3000 + "1" + ")" * 3000 + "))",
    "if true; then " * 3000,
])
def test_nothing_grows_without_bound(script: str) -> None:
    with suppress(InputError):
        found = read_script("script", script, {})
        assert sum(len(word) for command in found.commands for word in command) < 2**23


def test_flags_and_gpus_of_a_launch() -> None:
    text = f"torchrun --nproc_per_node 8 --nnodes=4 pretrain_gpt.py {LAUNCH} --a=1 --b --c x y --a 2"
    launch = launch_of("script", read_script("script", text, {}))
    assert (launch.program, launch.num_gpus) == ("pretrain_gpt.py", 32)
    assert launch.flags == {"num-layers": ("1",), "a": ("2",), "b": (), "c": ("x", "y")}
    assert flags_of(["stray", "--a"]) == {"a": ()}


def test_a_list_of_flags_is_a_launch() -> None:
    launch = launch_of("flags", read_script("flags", "--num-layers 2\n--hidden-size 8 \\\n  --bf16\n", {}))
    assert launch.flags == {"num-layers": ("2",), "hidden-size": ("8",), "bf16": ()}


def test_the_last_of_several_training_commands_is_read() -> None:
    launch = launch_of("script", read_script("script", "a.py --num-layers 1\nb.py --num-layers 2", {}))
    assert (launch.program, launch.flags["num-layers"]) == ("b.py", ("2",))
    assert launch.notes == ("the last of 2 training commands is read",)


def test_a_script_without_training_is_refused() -> None:
    with pytest.raises(InputError, match="must start a training program"):
        launch_of("script", read_script("script", "echo hello", {}))
