"""Costs as sums of products, compared term by term."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sbmt.cost import evaluate

_POWERS = {"": 1, "²": 2, "³": 3, "⁴": 4}
_MARKS = {power: mark for mark, power in _POWERS.items()}


@dataclass(frozen=True)
class Formula:
    """A sum of products of whole numbers and letters, written as :func:`sbmt.cost.evaluate` reads it.

    Example:
        >>> formula = Formula("2·h·n·k² + 4·h·n·k·d")
        >>> formula.degree("k"), formula.beyond(Formula("n·k·d + k²·d"), "h")
        (2, ('n·k²',))
    """

    text: str

    @property
    def terms(self) -> tuple[dict[str, int], ...]:
        """The power of each letter in each term that is not 0."""
        terms = []
        for product in self.text.split(" + "):
            powers: dict[str, int] = {}
            for factor in product.split("·"):
                if not factor.isdecimal():
                    powers[factor[0]] = powers.get(factor[0], 0) + _POWERS[factor[1:]]
            if product != "0":
                terms.append(powers)
        return tuple(terms)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value for these sizes."""
        return evaluate(self.text, sizes)

    def degree(self, letter: str) -> int:
        """The highest power of a letter: the exponent with which the formula grows in it alone."""
        return max((powers.get(letter, 0) for powers in self.terms), default=0)

    def beyond(self, bound: "Formula", constants: Collection[str] = ()) -> tuple[str, ...]:
        """The terms, without constants, that no constant times one term of the bound exceeds for all sizes ≥ 1."""
        found = []
        for term in self.terms:
            powers = {letter: power for letter, power in term.items() if letter not in constants}
            if not any(all(power <= other.get(letter, 0) for letter, power in powers.items()) for other in bound.terms):
                found.append("·".join(f"{letter}{_MARKS[power]}" for letter, power in powers.items()))
        return tuple(found)
