"""A picture of a certificate: the union with its Hamiltonian path, and how receptive sets grow."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.certificate import Certificate
from theory.conditions import as_csrs, receptive_sizes, union

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"proved": "#009E73", "refuted": "#D55E00", "unknown": "#6B7780"}  # told apart by most colour-blind eyes


def draw_certificate(certificate: Certificate, patterns: Sequence[Any], n_layers: int | None = None) -> "Figure":
    """Draws what a certificate found.

    Left: the entries of the union, row = query, with those on the Hamiltonian path highlighted. Right: how many tokens
    have reached a token after each layer (minimum, mean and maximum).

    Args:
        certificate: The certificate of these patterns.
        patterns: The patterns, as listed when they were certified.
        n_layers: How many layers the right panel shows. None shows as many as condition 3 takes; if it does not hold,
            two cycles, or one pass where the patterns act once.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    joined = union(as_csrs(patterns))
    n = joined.shape[0]
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    queries, keys = joined.nonzero()
    size = max(0.5, 200.0 / n)
    left.scatter(keys, queries, s=size, marker="s", color="#D5DCE1", label="entry")
    path = certificate.condition(2).witness.get("order", [])
    steps = np.array(list(pairwise(path)) or np.zeros((0, 2)))
    left.scatter(steps[:, 0], steps[:, 1], s=size, marker="s", color="#0072B2", label="on the path")
    left.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal", xlabel="key", ylabel="query")
    for axis in (left.xaxis, left.yaxis, right.xaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    left.set_title(_title(certificate, 2), color=_COLOURS[certificate.condition(2).outcome], fontsize=9)

    cycles = 2 if certificate.repeat else 1
    default = certificate.condition(3).witness.get("n_layers", cycles * certificate.n_patterns)
    sizes = np.array(receptive_sizes(patterns, n_layers or default, certificate.order))
    layers = np.arange(1, len(sizes) + 1)
    for label, values, style in (
        ("most", sizes.max(1), ":"),
        ("mean", sizes.mean(1), "-"),
        ("least", sizes.min(1), "--"),
    ):
        right.plot(layers, values, style, marker="o", markersize=3, color="#26323A", label=label)
    right.axhline(n, color="#6B7780", linewidth=0.8)
    right.set(ylim=(0, 1.05 * n), xlabel="layer", ylabel="tokens that have arrived")
    right.legend(frameon=False, fontsize=8)
    right.set_title(_title(certificate, 3), color=_COLOURS[certificate.condition(3).outcome], fontsize=9)
    return figure


def _title(certificate: Certificate, number: int) -> str:
    finding = certificate.condition(number)
    return f"condition {number}, {finding.name}: {finding.outcome}"
