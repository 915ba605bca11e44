"""The parts of a module's cost, and the meaning of the letters in formulas."""

from collections.abc import Mapping
from dataclasses import dataclass

from sbmt.cost.formula import Formula

SYMBOLS = {
    "b": "sequences in the batch",
    "h": "heads",
    "n": "tokens of a sequence",
    "m": "edges, over all sequences and heads",
    "e": "edges of graphs that heads share, over all sequences",
    "d": "width of a head",
    "k": "clusters (SBM, routing), random features (Performer), mixtures (Linformer), landmarks (Nyströmformer)",
    "D": "width of the model",
    "V": "entries of a token that is a vector",
    "H": "hidden width of an MLP",
    "r": "rounds of hashing (Reformer)",
    "c": "tokens per chunk (Reformer)",
    "s": "clusters of a group, or parts of a partition (SBM), chunks per sequence (Reformer)",
    "a": "parts of a partition that a token is in (SBM)",
    "g": "groups of clusters (SBM)",
    "N": "tokens rounded up to whole chunks, c·s (Reformer)",
    "i": "steps of the pseudo-inverse (Nyströmformer)",
    "w": "length of the convolution (Nyströmformer)",
    "F": "numbers that the head sees (dual encoder)",
    "E": "width of the last hidden layer of the head (dual encoder)",
    "L": "labels",
}
"""The letters of all formulas."""


@dataclass(frozen=True)
class Part:
    """One step of a module.

    Attributes:
        name: What it computes.
        flops: Operations in matrix products; a multiply-add counts as 2.
        elementwise: All other operations, see :mod:`sbmt.cost.operations`.
    """

    name: str
    flops: Formula
    elementwise: Formula


@dataclass(frozen=True)
class ModuleCost:
    """The parts of a module, and those sizes that do not come from the input.

    Attributes:
        parts: In the order of the computation.
        sizes: Numbers for the letters in the parts' formulas, except b, n and m.
    """

    parts: tuple[Part, ...]
    sizes: Mapping[str, int]


def part(name: str, flops: str = "0", elementwise: str = "0") -> Part:
    """A :class:`Part` from the texts of its formulas."""
    return Part(name, Formula(flops), Formula(elementwise))
