"""The exported appendix: formulas of one implementation, or terms and numbers of one configuration, and its sources."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.files.rendering import rendered, source_of

from ..accounts import kept_rows
from ..implementations import Implementation
from ..sources import BY_KEY
from .bibtex import bibtex, cited
from .configured import Configured, configured
from .notation import kernels
from .scope import Scope
from .supplement import ledger
from .tex import comment


@dataclass(frozen=True)
class Appendix:
    """A LaTeX document, or a part of one, and its BibTeX file."""

    tex: str
    bib: str

    @property
    def cited(self) -> int:
        """The number of sources."""
        return len(cited(self.tex))


def exported(
    implementation: Implementation, stem: str, command: str, configuration: Configured | None = None,
    standalone: bool = True,
) -> Appendix:
    """Return the appendix of one implementation; ``stem`` names its files, and its labels begin with it.

    ``command`` says what wrote it. With a ``configuration`` it has the terms and numbers of that one alone.
    """
    scope = Scope((implementation,))
    header = comment(f"Written by {command}")
    if configuration is None:
        name, data = "appendix_exported.tex", {**ledger(scope), "configured": None}
    else:
        keys = {row.tensor.source for row in kept_rows(implementation)}
        name, data = "appendix_configured.tex", {
            "configured": configured(scope, configuration), "sources": [key for key in BY_KEY if key in keys],
        }
    tex = rendered(name, {
        **data, "main": kernels(implementation), "labels": stem, "stem": stem, "standalone": standalone,
        "packages": source_of("_packages.tex").splitlines(),
    }, header)
    return Appendix(tex, rendered("appendix_exported.bib", bibtex(cited(tex)), header))
