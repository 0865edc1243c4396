"""Sensitivities of the peak of a configuration, and the smallest changes that make it fit."""

from shardmath.commands.moves.around import Move, Replaced
from shardmath.commands.moves.formulas import SlopeFormula, SlopeFormulas
from shardmath.commands.moves.run import Moves, moves
from shardmath.commands.moves.sensitivities import Difference, Sensitivity

__all__ = ["Difference", "Move", "Moves", "Replaced", "Sensitivity", "SlopeFormula", "SlopeFormulas", "moves"]
