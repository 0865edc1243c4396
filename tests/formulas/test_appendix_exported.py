"""Exported appendices: what one implementation uses and no more, exact numbers of a configuration, sources, LaTeX."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from printed_notations import notations
from read_formulas import compute
from sympy import Rational
from typesetting import NEEDS_LATEX, formulas_in, pages, refuse_complaints, run, typeset

from shardmath.account.accounting import explanation
from shardmath.account.configured import Configuration, configured, configured_on_any
from shardmath.cli.main import exit_code
from shardmath.commands.appendix.run import appendix
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.components import all_components
from shardmath.symbolic.documents.bibtex import authors, cited
from shardmath.symbolic.documents.exported import Appendix
from shardmath.symbolic.documents.forms import aliases, shown
from shardmath.symbolic.documents.tex import code, comment, digits, escape, gib, named
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parameters import BY_NAME, symbol
from shardmath.symbolic.sources import BY_KEY, SOURCES

pytestmark = pytest.mark.slow

#: Lines of a paper may be so short that a long fraction is set smaller than in a document of its own.
IN_A_PAPER = 0.7
#: A paper that reads an appendix, with narrow lines; what it defines stays its own.
PAPER = r"""
\documentclass{%(options)s}
\usepackage{amsmath,amssymb}
\usepackage{array,booktabs,longtable}
\usepackage{graphicx}
\usepackage{url}
\newcommand{\form}[1]{form of #1}
\newcolumntype{R}{>{\bfseries}r}
\begin{document}
Text, \form{itself}~\cite{pytorch}.
\appendix
\input{%(stem)s}
\section{After it}\label{after}
\form{itself} \begin{tabular}{R} as before \end{tabular}
\bibliographystyle{plain}
\bibliography{%(stem)s}
\end{document}
"""
#: Pages of one configuration at most.
LIMIT = 6
#: Names that would be TeX, or that no font has.
NAMES = (
    r"a_b^c~d#e%f&g$h{i}j\k", r"\input{/etc/passwd}", r"\write18{touch found}", "line\n\n\\par two\r\t", "^^5cinput",
    "模型 \N{GREEK SMALL LETTER PHI} e\N{COMBINING ACUTE ACCENT} Ångström",
    "<x>|\"'`--``\N{NO-BREAK SPACE}\N{EN DASH}²",
    "%\n\\end{document}", "\\", "{", "}", "ﬁ \N{RIGHT-TO-LEFT OVERRIDE}abc", "\x00\x07\x1b[31m",
)
LLAMA: dict[str, Any] = {
    "tensor_parallel": 4, "pipeline_parallel": 2, "num_gpus": 16, "global_batch_size": 1024,
}
CASES: dict[str, dict[str, Any]] = {
    "llama": {"model": "llama-3.1-8b", "gpu": "a100-40gb", **LLAMA},
    "listed": {"model": "llama-3.1-8b", "gpu": "h100-80gb", "pipeline_layout": "9,7,9,7", "pipeline_parallel": 4},
    "interleaved": {"model": "llama-3.1-70b", "gpu": "h100-80gb", "tensor_parallel": 4, "pipeline_parallel": 8,
                    "num_gpus": 64, "virtual_pipeline": 5},
    "experts": {"model": "mixtral-8x7b", "gpu": "h100-80gb", "num_gpus": 64, "expert_parallel": 8,
                "pipeline_parallel": 2},
    "nothing known of its speed": {"model": "llama-3.1-8b", "gpu": Gpu.custom(80), "num_gpus": 8,
                                   "implementation": "huggingface", "lora_rank": 16,
                                   "kernels": {"base_weights": "nf4"}},
}
DOCS = Path(__file__).resolve().parents[2] / "docs"
#: A Llama under each system of docs/systems.md; phases are two configurations, each with an appendix like any other.
SYSTEMS: dict[str, dict[str, Any]] = {
    name: {"model": "llama-3.2-1b", "gpu": "h100-80gb", "num_gpus": 16, "global_batch_size": 32, **own}
    for name, own in {
        "three tensor axes": {"kernels": {"tensor_axes": "three"}, "tensor_parallel": 2, "tensor_parallel_y": 2},
        "slices of TeraPipe": {"kernels": {"slices": "tokens"}, "pipeline_parallel": 2, "sequence_slices": 4},
        "slices of Seq1F1B": {"pipeline_parallel": 2, "sequence_slices": 2},
        "local updates": {"kernels": {"local_updates": "diloco_host"}, "inner_steps": 10, "data_parallel_replicas": 2},
        "KARMA": {"kernels": {"activation_offload": "karma", "recompute_method": "block"}, "recompute": "full",
                  "recompute_num_layers": 2, "cpu_offloading_num_layers": 4},
        "Deep Optimizer States": {"gpu_update_stride": 2},
        "measured links": {"gpu": DOCS / "clusters" / "measured.toml", "pipeline_parallel": 2},
        "mixed GPUs": {"gpu": DOCS / "systems" / "mixed_gpus.toml", "tensor_parallel": 8, "pipeline_parallel": 2},
    }.items()
}


@cache
def exported(implementation: str, standalone: bool = True) -> Appendix:
    return appendix(implementation, standalone=standalone)


def of(case: str) -> Configuration:
    return configured_on_any(**{**CASES, **SYSTEMS}[case])


@cache
def document(case: str) -> Appendix:
    return appendix(configuration=of(case))


def llama() -> Appendix:
    return document("llama")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of all tables between a heading and the next one."""
    part = text[text.index(heading) + len(heading):]
    part = part[:min(part.find(end) for end in (r"\section", r"\subsection", r"\endgroup") if end in part)]
    return [line.removesuffix(r" \\").split(" & ") for line in part.splitlines() if line.endswith(r" \\")]


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of a table with its head."""
    part = text[text.index(heading):]
    lines = part[:part.index(r"\end{longtable}")].replace(r" \\ \midrule \endhead", r" \\").splitlines()
    return [line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r" \\")]


@pytest.mark.parametrize("name", ["nanotron"])
def test_it_has_what_the_implementation_uses_and_no_more(name: str) -> None:
    text, chosen = exported(name).tex, IMPLEMENTATIONS[name]
    fixed = {symbol(letter): value for letter, value in fixed_values(chosen).items()}
    for component in all_components():
        kept = {code(row.tensor.name) for row in kept_rows(chosen)
                if row.component is component and row.expression.subs(fixed) != 0}
        assert (f"Component {code(component.name)}," in text) == bool(kept)
        if kept:
            cells = [row[0] for row in rows(text, rf"\subsection{{{escape(component.title)}}}")]
            assert {cell for cell in cells if cell in {code(tensor.name) for tensor in component.tensors}} == kept
    same = aliases(chosen)
    assert all((rf"{code(term)} & \form" in text) == (build(chosen)[term].symbol not in same)
               for term in shown(build(chosen)))
    assert all(f"{code(rule.name)} & " in text for rule in rules_for(chosen))
    for other in IMPLEMENTATIONS.values():
        assert other is chosen or other.version not in text
    assert "expert" not in "".join(row[0] for row in rows(text, r"\section{Components}"))
    assert r"\section{Time of a step}" in text
    assert r"\section{Published" not in text


def test_sources_are_those_that_are_cited() -> None:
    found = exported("nanotron")
    keys = re.findall(r"@misc\{(\w+),", found.bib)
    assert set(keys) == cited(found.tex)
    assert found.cited == len(keys) < len(SOURCES)
    assert {"deepspeed", "bitsandbytes", "torchao", "peft"} & {*keys} == set()
    assert [key for key in keys if BY_KEY[key].url not in found.bib] == []
    assert found.bib.count("{") == found.bib.count("}")


def test_every_letter_of_a_formula_is_explained() -> None:
    text = exported("nanotron").tex
    letters = {row[0] for row in rows(text, r"\section{Notation}")}
    assert {"$s$", "$b$", "$h$", "$t$", "$p$", "$r$", "$M$"} <= letters
    assert {"$f_{e}$", "$q$"} & letters == set()


@pytest.mark.parametrize(("given", "expected"), [
    ("K. Fujii, K. Watanabe, R. Yokota", "K. Fujii and K. Watanabe and R. Yokota"),
    ("D. Narayanan, M. Shoeybi, et al.", "D. Narayanan and M. Shoeybi and others"),
    ("S. A. Jacobs, J. Lamy-Poirier", "S. A. Jacobs and J. Lamy-Poirier"),
    ("Llama Team, AI at Meta", "{Llama Team, AI at Meta}"), ("NVIDIA", "{NVIDIA}"), ("DeepSeek-AI", "{DeepSeek-AI}"),
])
def test_authors_are_separated_as_bibtex_wants_them(given: str, expected: str) -> None:
    assert authors(given) == expected


def test_addresses_and_keys_need_no_escapes() -> None:
    for source in SOURCES:
        assert re.fullmatch(r"https://[A-Za-z0-9./-]+", source.url)
        assert re.fullmatch(r"\w+", source.key)


@pytest.mark.parametrize("case", [*CASES, *SYSTEMS])
def test_terms_are_those_of_explain_in_letters(case: str) -> None:
    """Read every form back: over letters and terms of the rank it has the value that stands beside it."""
    text, configuration = document(case).tex, of(case)
    peak = explanation(configuration).peak
    values = configuration.job.on_rank(peak.rank)
    numbers = terms_at(configuration.job.evaluator.terms, values)
    evaluator = configuration.job.evaluator
    terms = build(IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices))
    latex = notations(terms.terms.values())[2]
    known = {BY_NAME[name].letter: Fraction(value) for name, value in values.items() if name in BY_NAME}
    known |= {str(terms[name].symbol.name): Fraction(value) for name, value in numbers.items() if name in terms}
    seen = []
    for cell, value, gibibytes in rows(text, r"\label{appendix:terms}"):
        symbol, _, right = formulas_in(cell)[0].partition(" = ")
        (name,) = latex.read(symbol).names()
        seen.append(name)
        assert value == digits(Rational(known[name])) != "0", name
        assert compute(latex.read(right), known) == known[name], name
        assert gibibytes in ("", gib(Rational(known[name])))
    assert {"stage.static", "stage.total"} <= {*seen}
    assert len(seen) == len({*seen}) > 10


def test_numbers_are_those_of_explain() -> None:
    text, account = llama().tex, explanation(of("llama"))
    for item, row in zip(account.ranks, rows(text, r"\section{Pipeline ranks}"), strict=True):
        assert row == [str(item.rank), str(item.in_flight), code(item.site), digits(Rational(item.total)),
                       gib(Rational(item.total)), f"{100 * item.share:.1f}", item.verdict]
    assert f"The peak is ${digits(Rational(account.peak.total))}$ bytes" in text
    assert rf"\emph{{{account.peak.verdict}}}" in text
    assert account.time is not None
    assert f"A step takes {account.time.seconds:.3f} s" in text
    spent = {row[0]: row[1] for row in rows(text, r"\section{Step time}")}
    assert all(spent[code(part)] == f"{seconds:.3f}" for part, seconds in account.time.spent.items() if seconds)


def test_values_are_those_that_were_asked_for() -> None:
    cells = [cell for row in rows(llama().tex, r"\section{Values}") for cell in row]
    printed = dict(zip(cells[1::3], cells[2::3], strict=True))
    asked = {**LLAMA, "hidden_size": 4096, "seq_length": 8192, "gpu_memory": 40 * 2**30, "node_size": 8}
    for name, value in asked.items():
        assert printed[code(name)] == digits(Rational(value))


@pytest.mark.parametrize("case", [*CASES, *SYSTEMS])
def test_lines_of_the_ranks_add_up_to_their_totals(case: str) -> None:
    account = explanation(of(case))
    heading, *lines, sums = table(document(case).tex, r"\section{By component and role}")
    shown = [int(cell.strip("$").removeprefix("r = ")) for cell in heading[2:]]
    assert account.peak.rank in shown
    assert sums[2:] == [gib(Rational(account.ranks[rank].total)) for rank in shown]
    for place, rank in enumerate(shown):
        printed = {(row[0], row[1]): row[2 + place] for row in lines if row[2 + place]}
        assert printed == {(code(line.component), line.role): gib(Rational(Fraction(line.bytes)))
                           for line in account.ranks[rank].lines if line.bytes}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_tex(name: str) -> None:
    text = named(name)
    assert text.isascii()
    assert "\n" not in text
    bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}", "", text)
    bare = re.sub(r"\\symbol\{\d\d\}|\\[{}$&%#]|\\_\\allowbreak |\\[`'^~\"]\{\w\}|\\[vc]\{\w\}", "", bare)
    bare = re.sub(r"\$(\^2|\^3|\\times|\\cdot|\\to|\\le|\\ge)\$", "", bare)
    assert not set(bare) & set("\\{}$&%#^_~"), bare
    assert comment(name).isprintable()


def test_a_configuration_with_such_a_name_stays_text() -> None:
    plain = of("llama")
    job = plain.job
    model = Model(**{**job.model.model_dump(), "name": "\\input{x}%\n^^M$模_"})
    changed = appendix(configuration=configured(model, "a100-40gb", **LLAMA))
    title = re.search(r"\\section\{(.*)\}\\label\{appendix:configuration\}", changed.tex)
    assert title is not None
    assert title[1].startswith(named(model.name))
    assert changed.tex.replace(named(model.name), named(job.model.name)) == llama().tex


@pytest.mark.parametrize(("line", "said"), [
    ("appendix -o a.txt", "output = 'a.txt': must end with .tex"),
    ("appendix -o -", "output = '-': must end with .tex"),
    ("appendix -o 'a b.tex'", "BibTeX reads no other names"),
    ("appendix -o 'a%.tex'", "BibTeX reads no other names"),
    ("appendix -o nowhere/a.tex", "output = 'nowhere/a.tex': must be a file that can be written"),
    ("appendix -o a.tex --tp 4", "model = absent: must be given with tensor_parallel"),
    ("appendix -o a.tex --implementation megatrom", "nearest legal: megatron"),
    ("appendix -o a.tex --kernel swiglu=quick", "kernel swiglu = 'quick'"),
    ("appendix -o a.tex --model llama-3.1-8b", "gpu = absent"),
    ("appendix -o a.tex --model llama-3.1-8b --gpu a100-40gb --tp 3", "tensor_parallel = 3"),
])
def test_bad_input_is_one_line_and_nothing_is_written(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    assert exit_code(shlex.split(line)) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_stem_that_bibtex_cannot_read_is_refused() -> None:
    with pytest.raises(InputError, match="nearest legal: appendix"):
        appendix("nanotron", stem="../x y")


def test_the_command_writes_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(["appendix", "--implementation", "nanotron", "--input", "-o", "mine.tex"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.bib", "mine.tex"]
    text = (tmp_path / "mine.tex").read_text()
    assert text == appendix("nanotron", stem="mine", standalone=False).tex
    assert (tmp_path / "mine.bib").read_text() == appendix("nanotron", stem="mine").bib
    assert r"\documentclass" not in text
    assert r"\label{mine:notation}" in text
    assert "mine.bib: " in capsys.readouterr().out


needs_latex = [pytest.mark.latex, NEEDS_LATEX]


@pytest.mark.parametrize("implementation", [pytest.param(name, marks=needs_latex) for name in IMPLEMENTATIONS])
def test_both_forms_compile(implementation: str, tmp_path: Path) -> None:
    found = exported(implementation)
    (tmp_path / "appendix.tex").write_text(found.tex)
    (tmp_path / "appendix.bib").write_text(found.bib)
    refuse_complaints(typeset(tmp_path, "appendix", True))
    (tmp_path / "appendix.tex").write_text(exported(implementation, standalone=False).tex)
    more = {"huggingface": r"}\usepackage{hyperref,geometry", "torchtitan": r"}\usepackage{calc,tabularx"}
    options = "article" + more.get(implementation, "")
    (tmp_path / "paper.tex").write_text(PAPER % {"options": options, "stem": "appendix"})
    refuse_complaints(typeset(tmp_path, "paper", True), IN_A_PAPER)


@pytest.mark.parametrize("case", [pytest.param(name, marks=needs_latex) for name in CASES])
def test_configurations_compile(case: str, tmp_path: Path) -> None:
    for standalone, stem in ((True, "whole"), (False, "part")):
        found = appendix(configuration=of(case), stem=stem, standalone=standalone)
        (tmp_path / f"{stem}.tex").write_text(found.tex)
        (tmp_path / f"{stem}.bib").write_text(found.bib)
    log = typeset(tmp_path, "whole", True)
    refuse_complaints(log)
    assert pages(log) <= LIMIT
    two = PAPER.replace(r"\documentclass{", r"\documentclass[twocolumn]{")
    (tmp_path / "paper.tex").write_text((two if case == "llama" else PAPER) % {"options": "article", "stem": "part"})
    refuse_complaints(typeset(tmp_path, "paper", True), IN_A_PAPER)


@pytest.mark.parametrize("encoding", [pytest.param(name, marks=needs_latex) for name in ("T1", "OT1")])
def test_names_compile_to_themselves(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "document.tex").write_text(
        rf"\documentclass{{article}}\usepackage[{encoding}]{{fontenc}}\begin{{document}}"
        + "\n".join(rf"\section{{{named(name)}}}" for name in NAMES) + r"\end{document}"
    )
    run(tmp_path, "pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document")
    assert {path.suffix for path in tmp_path.iterdir()} <= {".tex", ".pdf", ".log", ".aux"}
    assert "Missing character" not in (tmp_path / "document.log").read_text(errors="replace")
