"""The page: one HTML file that needs no network, with generated JavaScript for its numbers and MathML for its formulas.

``catalogue`` prepares models, GPUs and evaluators, ``typesetting`` the formulas, ``writing`` fills the templates.
"""

from shardmath.commands.page.writing import page

__all__ = ["page"]
