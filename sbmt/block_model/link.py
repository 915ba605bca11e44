r"""Links: how the rate of a query-key pair becomes the probability of its edge.

A block model gives every pair a rate, $r_{ij} = \hat Q_i S \hat K_j^\top$. What a rate means is the business of its
link, and all of it is in this file; no other file asks which link it has. The paper's link is :class:`Bilinear`. To add
another one, write a subclass of :class:`Link` and pass an instance as ``link=`` to :class:`~sbmt.BlockModel` or
:class:`~sbmt.SBMAttention`.

Exploration enters every link in the same way, as δ added to the rate of each pair of real tokens.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from sbmt.errors import SbmtError, choose
from sbmt.kernels import MAX_BOOST

LARGEST_RATE = 1e30  # of a block matrix: sums over clusters and tokens stay finite in float32
LARGEST_LEARNED = 10.0  # logarithm of a learned rate: 1 − e^(−rate) is 1 long before, and Algorithm 1 draws each one


@dataclass(frozen=True)
class Link(ABC):
    """From rates to edge probabilities, and what follows from that elsewhere.

    A subclass defines ``name`` and :meth:`probability`. The rest has defaults that suit any increasing function with
    p(0) = 0: all samplers but ``"exact"`` work, and sums of probabilities are formed pair by pair.

    Attributes:
        name: What error messages and ``repr`` call the link.
        largest_entry: Upper bound of the entries of a block matrix.
        is_linear: Whether p = min(r, 1). The gate then needs no probability, since dp/dr = 1, and the mean probability
            has a closed form as long as no rate exceeds 1.
        has_kernels: Whether the compiled samplers and the fused GPU kernels know this link.
        is_poisson: Whether p = 1 − e^{−r}. Kernels take this flag, and candidate edges then need no thinning.
    """

    name: ClassVar[str]
    largest_entry: ClassVar[float] = LARGEST_RATE
    is_linear: ClassVar[bool] = False
    has_kernels: ClassVar[bool] = False
    is_poisson: ClassVar[bool] = False

    @abstractmethod
    def probability(self, rate: Tensor) -> Tensor:
        """The edge probability of each rate, in [0, 1]; rates are ≥ 0."""

    def unclamped(self, rate: Tensor) -> Tensor:
        """The probability without any cut at 1; the gate passes on the gradient of this function."""
        return self.probability(rate)

    def block_matrix(self, scores: Tensor, *, sums_to_one: bool) -> Tensor:
        r"""The block matrix that a layer makes of its clusters: $S = e^{C C^\top} / k^2$.

        Args:
            scores: $C C^\top$ within each group of clusters, ``(heads, g, k/g, k/g)``; −∞ where an entry has to be 0.
            sums_to_one: Whether the memberships of a token sum to 1. They are then k/2 times smaller than memberships
                of about ½ each, and $S = e^{C C^\top} / 4$ starts from the same probabilities.
        """
        divisor = 4 if sums_to_one else scores[0].numel()
        largest = LARGEST_LEARNED + (0.0 if sums_to_one else log(divisor))
        return scores.clamp(max=largest).exp() / divisor

    def part_blocks(self, scores: Tensor) -> Tensor:
        r"""The blocks of partitions of which two are crossed: $e^{C C^\top} / 2$ each, and $e^{\dots} / 4$ together.

        Args:
            scores: $C C^\top$ within each partition, ``(heads, partitions, s, s)``; −∞ where an entry has to be 0.
        """
        return scores.clamp(max=LARGEST_LEARNED / 2).exp() / 2

    def explored_mean(self, mean: Tensor, exploration: float, is_real: Tensor) -> Tensor | None:
        """The mean probability with exploration, if it follows from the mean without; None if it does not.

        Args:
            mean: Mean probability over the real pairs of each graph, ``(batch, heads)``.
            exploration: δ in (0, 1).
            is_real: 1 where a graph has real pairs, else 0; ``(batch, 1)``.
        """
        return None

    def candidate_factor(self, bound: Tensor) -> Tensor:
        r"""The factor c for which $1 - e^{-c x} \ge p(x)$ for all rates x up to a bound, rounded up.

        The sampler ``"exact"`` draws Poisson candidates at rate c·x and thins them to the probability p(x), so it needs
        at least as many candidates as edges.

        Args:
            bound: Upper bounds of the rates of each row, in float64.

        Raises:
            SbmtError: If the link does not say.
        """
        do = "use sampler='bernoulli', or give the link's class this method"
        raise SbmtError("a link with a candidate_factor for sampler='exact'", f"link {self.name!r}", do)


@dataclass(frozen=True)
class Bilinear(Link):
    """p = min(r, 1), the paper's link. Paper: equation 8."""

    name = "bilinear"
    largest_entry = 1.0
    is_linear = True
    has_kernels = True

    def probability(self, rate: Tensor) -> Tensor:
        """min(r, 1)."""
        return rate.clamp(max=1.0)

    def unclamped(self, rate: Tensor) -> Tensor:
        """The rate itself: where the clamp has gradient 0, no edge of probability 1 could ever become less likely."""
        return rate

    def block_matrix(self, scores: Tensor, *, sums_to_one: bool) -> Tensor:
        """The softmax over all k² entries. Paper: equation 5."""
        return torch.softmax(scores.flatten(1), -1).view_as(scores)

    def explored_mean(self, mean: Tensor, exploration: float, is_real: Tensor) -> Tensor:
        """min(mean + δ, 1)."""
        return torch.minimum(mean + exploration * is_real, is_real)

    def candidate_factor(self, bound: Tensor) -> Tensor:
        """−ln(1 − x)/x for the largest rate x, and at most 32."""
        bound = (bound * (1 + 1e-12)).clamp(1e-300, 1.0)
        return (-torch.log1p(-bound) / bound * (1 + 1e-12)).clamp(max=MAX_BOOST)


@dataclass(frozen=True)
class Poisson(Link):
    """p = 1 − e^{−r}, where rates are unbounded. Not in the paper: under this link its Algorithm 1 is exact."""

    name = "poisson"
    has_kernels = True
    is_poisson = True

    def probability(self, rate: Tensor) -> Tensor:
        """1 − e^{−r}."""
        return -torch.expm1(-rate)

    def explored_mean(self, mean: Tensor, exploration: float, is_real: Tensor) -> Tensor:
        """1 − e^{−(r+δ)} = 1 − e^{−δ}(1 − p) pair by pair, and so on average."""
        return is_real - torch.exp(torch.tensor(-exploration, dtype=mean.dtype)) * (is_real - mean)

    def candidate_factor(self, bound: Tensor) -> Tensor:
        """1: the candidates are the edges."""
        return torch.ones_like(bound)


LINKS: dict[str, Link] = {link.name: link for link in (Bilinear(), Poisson())}
"""The links that have names."""


def find_link(link: str | Link) -> Link:
    """The link of a name, or the link itself.

    Raises:
        SbmtError: If the name is unknown.
    """
    return link if isinstance(link, Link) else choose("link", link, LINKS)
