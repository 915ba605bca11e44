"""What a module costs: its operations counted by formula, its memory measured in a process of its own."""

from sbmt.cost.formula import Formula
from sbmt.cost.operations import OperationCount, OperationRow, count_operations
from sbmt.cost.parts import SYMBOLS, ModuleCost, Part, part

__all__ = [
    "SYMBOLS",
    "Formula",
    "ModuleCost",
    "OperationCount",
    "OperationRow",
    "Part",
    "count_operations",
    "part",
]
