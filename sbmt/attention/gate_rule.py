"""What a gate multiplies."""

from typing import Literal

GateRule = Literal["score", "weight"]
"""``"score"``: weight ∝ exp(gate · s), equation 9. ``"weight"``: weight ∝ gate · exp(s), the released code's."""
