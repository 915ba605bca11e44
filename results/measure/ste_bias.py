"""Measures the bias and variance of the gradient estimators over p, and writes ``results/ste_bias.json``.

``python results/measure/ste_bias.py`` takes about 15 seconds on one thread. All but the manifest is the same each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

import torch
from torch import Tensor

from results.measure.common import run, write
from sbmt.experiments.studies.gradient_estimators import ESTIMATORS, EstimatorReport, measure_estimators

PROBABILITIES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
ALIGNMENTS = {"scores blind to use": 0.0, "scores aligned with use": 2.0}
SIZES = {"n_graphs": 24, "n_queries": 3, "n_keys": 4, "n_classes": 3, "width": 4}
N_GRAPHS, N_QUERIES, N_KEYS, N_CLASSES, WIDTH = SIZES.values()


@dataclass(frozen=True, eq=False)
class ToyGraph:
    """A head that reads a few values, and a classifier that judges what it read."""

    query: Tensor  # n_queries d
    key: Tensor  # n_keys d
    value: Tensor  # n_keys d_value
    readout: Tensor  # d_value n_classes
    label: Tensor  # n_queries

    def loss(self, values: Tensor) -> Tensor:
        """Cross-entropy of softmax(values · readout), a mean over queries: ``(batch,)``."""
        log_probability = (values @ self.readout).log_softmax(-1)  # batch n_queries n_classes
        return -log_probability[:, torch.arange(len(self.label)), self.label].mean(-1)


def sample_toy_graph(alignment: float, generator: torch.Generator) -> ToyGraph:
    r"""A graph of standard normal queries, keys, values and readout, with uniform labels.

    The score of edge (i, j) is $q_i k_j^\top / \sqrt d$ plus ``alignment`` times $\text{readout}_{y_i} v_j / \sqrt d$.
    At 0, scores are independent of how useful a value is. Above 0, a query tends to give large scores to the values
    that speak for its label, as in a network that has learned something.
    """
    shapes = ((N_QUERIES, WIDTH), (N_KEYS, WIDTH), (N_KEYS, WIDTH), (WIDTH, N_CLASSES))
    query, key, value, readout = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    label = torch.randint(N_CLASSES, (N_QUERIES,), generator=generator)
    wanted = alignment * torch.nn.functional.one_hot(label, N_CLASSES)
    undo = ((WIDTH + N_CLASSES) / WIDTH) ** 0.5  # scores will be divided by the root of the new width
    return ToyGraph(torch.cat([query, wanted], 1) * undo, torch.cat([key, value @ readout], 1), value, readout, label)


def rows_at(p: float, alignment: float, exploration: float, n_graphs: int = N_GRAPHS) -> list[dict[str, Any]]:
    """A row per estimator: medians over toy graphs.

    Graph i is drawn from seed i. Its edges are not equally likely: their log-odds scatter about those of p with a
    standard deviation of 1. ``same_pull`` is the share of graphs where the pull has the sign of the exact one.
    """
    graphs = []
    for seed in range(n_graphs):
        generator = torch.Generator().manual_seed(seed)
        graph = sample_toy_graph(alignment, generator)
        scatter = torch.randn(N_QUERIES, N_KEYS, generator=generator, dtype=torch.float64)
        probability = torch.sigmoid(torch.tensor(p, dtype=torch.float64).logit() + scatter)
        inputs = (graph.query, graph.key, graph.value, probability, graph.loss)
        graphs.append(measure_estimators(*inputs, exploration=exploration))
    rows = [{"probability": p, "estimator": name} | summary([found[name] for found in graphs]) for name in ESTIMATORS]
    return [{key: round(float(f"{x:.5g}"), 9) if isinstance(x, float) else x for key, x in row.items()} for row in rows]


def summary(reports: Sequence[EstimatorReport]) -> dict[str, float]:
    """One estimator's medians over graphs."""
    measures = ("relative_bias", "relative_variance", "cosine", "draw_cosine")
    pulls = [(pull(report.mean, report), pull(report.exact, report)) for report in reports]
    same = sum(estimated * exact > 0 for estimated, exact in pulls) / len(pulls)
    medians = {name: median(getattr(report, name) for report in reports) for name in measures}
    return medians | {"pull": median(estimated for estimated, _ in pulls), "same_pull": same}


def pull(gradient: Tensor, report: EstimatorReport) -> float:
    """Minus the sum over edges, over |exact|: above 0, descent makes the mask denser; rounding noise is 0."""
    total = -float(gradient.sum() / report.exact.norm())
    return total if abs(total) > 1e-9 else 0.0


def main() -> None:
    """Measures and writes."""
    parts = []
    for (scores, alignment), exploration in product(ALIGNMENTS.items(), (0.0, 0.01)):
        rows = [row for p in PROBABILITIES for row in rows_at(p, alignment, exploration)]
        parts.append({"scores": scores, "alignment": alignment, "exploration": exploration, "rows": rows})
    settings = {"probabilities": PROBABILITIES, **SIZES, "scatter_of_log_odds": 1.0}
    write("ste_bias", {"settings": settings, "parts": parts})


if __name__ == "__main__":
    run(main, "ste_bias")
