"""Pictures of a certificate, and of what Lemma 1 expects against what exists."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.certificate import Certificate
from theory.conditions import as_csrs, receptive_sizes, union
from theory.random_graphs import expected_hamiltonian_cycles, prob_all_degrees

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"proved": "#009E73", "refuted": "#D55E00", "unknown": "#6B7780"}  # told apart by most colour-blind eyes


def draw_certificate(certificate: Certificate, patterns: Sequence[Any], n_layers: int | None = None) -> "Figure":
    """Draws what a certificate found.

    Left: the entries of the union, row = query, with those on the Hamiltonian path highlighted. Right: how many tokens
    have reached a token after each of ``n_layers`` layers (minimum, mean and maximum). By default it shows as many as
    condition 3 takes; if it does not hold, two cycles, or one pass if the patterns act once.

    Raises:
        SbmtError: If the patterns are invalid or n_layers < 1.
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
    for axes, finding in ((left, certificate.condition(2)), (right, certificate.condition(3))):
        title = f"condition {finding.condition}, {finding.name}: {finding.outcome}"
        axes.set_title(title, color=_COLOURS[finding.outcome], fontsize=9)
    return figure


def draw_expectation() -> "Figure":
    """Draws the expected Hamiltonian cycles at p_L, and the probability that no token lacks an arc in or out."""
    from matplotlib.figure import Figure

    sizes = [4, 6, 8, 12, 16, 24, 32, 48, 64]
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    left.plot(sizes, [expected_hamiltonian_cycles(n, "lemma1") for n in sizes], "o-", color="#D55E00")
    right.plot(sizes, [prob_all_degrees(n, "lemma1") for n in sizes], "s--", color="#0072B2")
    left.set(xlabel="tokens n, at p = (e/n) n^(1/n)", ylim=(0, None), xscale="log")
    left.set_xticks(sizes, [str(n) for n in sizes])
    left.minorticks_off()
    left.set_ylabel("expected Hamiltonian cycles", color="#D55E00")
    right.set(ylim=(0, 1.02))
    right.set_ylabel("P(every token has an arc in and out)", color="#0072B2")
    left.set_title("expectation rises, existence falls: no cycle without such arcs", fontsize=9)
    return figure
