"""Costs as sums of products: the formula that a page shows is the one that is evaluated."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from sbmt.errors import SbmtError

_FACTOR = re.compile(r"(\d+)|([A-Za-z])([²³⁴]?)")
_POWERS = {"": 1, "²": 2, "³": 3, "⁴": 4}


@dataclass(frozen=True)
class Term:
    """A whole number times powers of symbols."""

    factor: int
    powers: Mapping[str, int]

    def divides(self, other: "Term", ignored: Collection[str] = ()) -> bool:
        """Whether no symbol has a higher power here than in the other term; ignored symbols do not count."""
        return all(power <= other.powers.get(symbol, 0) or symbol in ignored for symbol, power in self.powers.items())

    def __str__(self) -> str:
        shown = {power: mark for mark, power in _POWERS.items()}
        factors = [f"{symbol}{shown[power]}" for symbol, power in self.powers.items()]
        return "·".join(factors if self.factor == 1 and factors else [str(self.factor), *factors])


@dataclass(frozen=True)
class Formula:
    """A sum of products of whole numbers and symbols, each symbol one letter.

    Args:
        text: A sum such as ``"8·n·d² + 4·n·k·d"``; ``"0"`` is the empty sum.

    Raises:
        SbmtError: If the text is not such a sum.

    Example:
        >>> formula = Formula("8·n·d² + 4·n·k·d")
        >>> formula.at({"n": 10, "k": 3, "d": 2}), formula.degree("d")
        (560, 2)
    """

    text: str

    def __post_init__(self) -> None:
        _ = self.terms  # a mistake is reported where the formula is written

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The summands."""
        return tuple(term for term in map(self._read, self.text.split(" + ")) if term.factor)

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbols, in the order of their appearance."""
        return tuple(dict.fromkeys(symbol for term in self.terms for symbol in term.powers))

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value for these sizes.

        Raises:
            SbmtError: If a symbol has no size.
        """
        missing = [symbol for symbol in self.symbols if symbol not in sizes]
        if missing:
            raise SbmtError(f"a size for {', '.join(missing)} of {self.text}", dict(sizes), "name every symbol")
        return sum(term.factor * prod(sizes[symbol] ** power for symbol, power in term.powers.items())
                   for term in self.terms)  # fmt: skip

    def degree(self, symbol: str) -> int:
        """The highest power of a symbol: the exponent with which the formula grows in it alone."""
        return max((term.powers.get(symbol, 0) for term in self.terms), default=0)

    def beyond(self, bound: "Formula", ignored: Collection[str] = ()) -> tuple[Term, ...]:
        """The terms that are not O(bound): no constant times one term of the bound exceeds them for all sizes ≥ 1.

        Args:
            bound: The claimed bound.
            ignored: Symbols that are treated as constants.

        Example:
            >>> bound = Formula("n·k·d + k²·d")
            >>> [str(term) for term in Formula("2·h·n·k² + 4·h·n·k·d").beyond(bound, "h")]
            ['2·h·n·k²']
        """
        return tuple(term for term in self.terms if not any(term.divides(other, ignored) for other in bound.terms))

    def __add__(self, other: "Formula") -> "Formula":
        """The sum, term after term; like terms are not combined."""
        texts = [formula.text for formula in (self, other) if formula.terms]
        return Formula(" + ".join(texts) or "0")

    def __str__(self) -> str:
        return self.text

    def _read(self, text: str) -> Term:
        factor, powers = 1, dict[str, int]()
        for piece in text.split("·"):
            found = _FACTOR.fullmatch(piece)
            if found is None:
                raise SbmtError("products such as 8·n·d², joined by ' + '", repr(self.text), "correct the formula")
            number, symbol, mark = found.groups()
            if number:
                factor *= int(number)
            else:
                powers[symbol] = powers.get(symbol, 0) + _POWERS[mark]
        return Term(factor, powers)
