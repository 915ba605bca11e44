"""Exploration: how training keeps drawing edges that the block model has made improbable."""

from dataclasses import dataclass

from sbmt.errors import SbmtError, describe, is_number


@dataclass(frozen=True)
class ExtraKeys:
    """Exploration as the expected number of extra keys per query, so that its cost stays linear in n.

    A constant δ adds δ · n² expected edges, which makes training quadratic however sparse the mask. This adds
    ``per_query`` · n: δ = per_query / n_keys, and at most ½.

    Attributes:
        per_query: Expected number of extra keys of a query, > 0; padded keys count among the n_keys but are never
            drawn.

    Raises:
        SbmtError: If ``per_query`` is not positive.

    Paper: not in it; the paper's δ is constant.

    Example:
        >>> ExtraKeys(4).probability(1000)
        0.004
    """

    per_query: int | float

    def __post_init__(self) -> None:
        if not is_number(self.per_query) or not 0 < self.per_query < float("inf"):
            raise SbmtError(
                "extra keys per query > 0", describe(self.per_query), "use exploration=0.0 for no exploration"
            )

    def probability(self, n_keys: int) -> float:
        """The δ that adds these keys."""
        return min(self.per_query / n_keys, 0.5)


def check_exploration(exploration: float) -> None:
    """Raises SbmtError unless 0 ≤ δ < 1."""
    if not is_number(exploration) or not 0 <= exploration < 1:
        raise SbmtError(
            "exploration δ in [0, 1)", describe(exploration), "0.01 is the paper's value, 0 switches it off"
        )
