"""What moves the peak of a configuration: exact sensitivities, differences, and the smallest changes that fit."""

from shardmath.moving.around import Move, Replaced
from shardmath.moving.formulas import SlopeFormula, SlopeFormulas
from shardmath.moving.run import Moves, moves
from shardmath.moving.sensitivities import Difference, Sensitivity

__all__ = ["Difference", "Move", "Moves", "Replaced", "Sensitivity", "SlopeFormula", "SlopeFormulas", "moves"]
