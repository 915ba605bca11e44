"""Measures the bias and variance of gradient estimators as functions of p; writes ``results/ste_bias.json``.

``python results/measure/ste_bias.py`` takes about 15 seconds on one thread. Only the manifest differs between runs.
"""

from functools import partial
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


def on_toy_graph(p: float, alignment: float, exploration: float, seed: int) -> dict[str, EstimatorReport]:
    r"""Measures all estimators for an attention head over a few values, whose output is classified.

    Queries, keys, values and the classifier's readout are standard normal, and labels are uniform. Edge (i, j) scores
    $q_i k_j^\top / \sqrt d$ plus ``alignment`` times $\text{readout}_{y_i} v_j / \sqrt d$. With an alignment of 0,
    scores are independent of how useful a value is. Above 0, a query tends to give large scores to values that support
    its label, as in a partly trained network. Edges are not equally likely: their log-odds are spread around those of p
    with a standard deviation of 1.
    """
    generator = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    query, key = normal(N_QUERIES, WIDTH), normal(N_KEYS, WIDTH)
    value, readout = normal(N_KEYS, WIDTH), normal(WIDTH, N_CLASSES)
    label = torch.randint(N_CLASSES, (N_QUERIES,), generator=generator)
    wanted = alignment * torch.nn.functional.one_hot(label, N_CLASSES)
    undo = ((WIDTH + N_CLASSES) / WIDTH) ** 0.5  # scores will be divided by the root of the new width
    query, key = torch.cat([query, wanted], 1) * undo, torch.cat([key, value @ readout], 1)
    log_odds = torch.tensor(p, dtype=torch.float64).logit() + normal(N_QUERIES, N_KEYS)

    def loss(values: Tensor) -> Tensor:
        log_probability = (values @ readout).log_softmax(-1)  # batch n_queries n_classes
        return -log_probability[:, torch.arange(N_QUERIES), label].mean(-1)

    return measure_estimators(query, key, value, log_odds.sigmoid(), loss, exploration=exploration)


def rows_at(p: float, alignment: float, exploration: float) -> list[dict[str, Any]]:
    """Returns one row per estimator, with rounded medians over toy graphs.

    ``pull`` is the negative sum of the mean estimate over edges, divided by |exact|. If positive, masks become denser.
    """
    graphs, rows = [on_toy_graph(p, alignment, exploration, seed) for seed in range(N_GRAPHS)], []
    for name in ESTIMATORS:
        reports = [found[name] for found in graphs]
        measures = ("relative_bias", "relative_variance", "cosine")
        medians = {measure: median(getattr(report, measure) for report in reports) for measure in measures}
        medians["pull"] = median(-float(report.mean.sum() / report.exact.norm()) for report in reports)
        rounded = {measure: round(float(f"{x:.5g}"), 9) for measure, x in medians.items()}
        rows.append({"probability": p, "estimator": name} | rounded)
    return rows


def main() -> None:
    """Measures all settings and writes the result file."""
    parts = []
    for (scores, alignment), exploration in product(ALIGNMENTS.items(), (0.0, 0.01)):
        rows = [row for p in PROBABILITIES for row in rows_at(p, alignment, exploration)]
        parts.append({"scores": scores, "alignment": alignment, "exploration": exploration, "rows": rows})
    settings = {"probabilities": PROBABILITIES, **SIZES, "scatter_of_log_odds": 1.0}
    write("ste_bias", {"settings": settings, "parts": parts})


if __name__ == "__main__":
    run(main, "ste_bias")
