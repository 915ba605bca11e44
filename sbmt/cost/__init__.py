"""What attention costs: operations counted, memory measured, both held against the paper's tables."""

from sbmt.cost.formula import Formula
from sbmt.cost.operations import OperationCount, OperationRow, count_operations
from sbmt.cost.parts import SYMBOLS

__all__ = ["SYMBOLS", "Formula", "OperationCount", "OperationRow", "count_operations"]
