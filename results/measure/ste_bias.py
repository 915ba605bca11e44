"""Measures the bias and variance of the gradient estimators over p, and writes ``results/ste_bias.json``.

``python results/measure/ste_bias.py`` takes about 15 seconds on one thread. All but the manifest is the same each time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from results.tables.studies import ste_bias_table
from sbmt.command import run_command
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.gradient_estimators import ESTIMATORS, EstimatorReport, measure_estimators
from sbmt.experiments.training.run import manifest

ROOT = Path(__file__).resolve().parents[2]

PROBABILITIES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
ALIGNMENTS = {"scores blind to use": 0.0, "scores aligned with use": 2.0}
EXPLORATIONS = (0.0, 0.01)
N_GRAPHS, N_QUERIES, N_KEYS, N_CLASSES, WIDTH = 24, 3, 4, 3, 4


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


def bias_over_probability(
    probabilities: Sequence[float] = PROBABILITIES,
    *,
    n_graphs: int = N_GRAPHS,
    alignment: float = 0.0,
    exploration: float = 0.0,
) -> list[dict[str, Any]]:
    """Medians over toy graphs, for each p and estimator.

    Graph i is drawn from seed i. Its edges are not equally likely: their log-odds scatter about those of p with a
    standard deviation of 1.

    Returns:
        Rows with ``probability``, ``estimator``, and the medians of ``relative_bias``, ``relative_variance``,
        ``cosine`` and ``draw_cosine`` (see
        :class:`sbmt.experiments.studies.gradient_estimators.EstimatorReport`), of ``pull``, and
        ``same_pull``: the share of graphs where its sign is that of the exact one. The pull is minus the sum of the
        mean over edges, over |exact|: where it is positive, descent makes the mask denser.
    """
    rows: list[dict[str, Any]] = []
    for p in probabilities:
        graphs = []
        for seed in range(n_graphs):
            generator = torch.Generator().manual_seed(seed)
            graph = sample_toy_graph(alignment, generator)
            scatter = torch.randn(N_QUERIES, N_KEYS, generator=generator, dtype=torch.float64)
            probability = torch.sigmoid(torch.tensor(p, dtype=torch.float64).logit() + scatter)
            inputs = (graph.query, graph.key, graph.value, probability, graph.loss)
            graphs.append(measure_estimators(*inputs, exploration=exploration))
        for name in ESTIMATORS:
            row = {"probability": p, "estimator": name} | summary([reports[name] for reports in graphs])
            rows.append({key: round(float(f"{x:.5g}"), 9) if isinstance(x, float) else x for key, x in row.items()})
    return rows


def summary(reports: Sequence[EstimatorReport]) -> dict[str, float]:
    """One estimator's medians over graphs."""
    measures = ("relative_bias", "relative_variance", "cosine", "draw_cosine")
    medians = {name: median(getattr(report, name) for report in reports) for name in measures}
    pulls = [(pull(report.mean, report), pull(report.exact, report)) for report in reports]
    same = sum(estimated * exact > 0 for estimated, exact in pulls) / len(pulls)
    return medians | {"pull": median(estimated for estimated, _ in pulls), "same_pull": same}


def pull(gradient: Tensor, report: EstimatorReport) -> float:
    """How much descent along a gradient changes the number of edges, relative to |exact|; rounding noise is 0."""
    total = -float(gradient.sum() / report.exact.norm())
    return total if abs(total) > 1e-9 else 0.0


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    parts = [
        {"scores": scores, "alignment": alignment, "exploration": exploration}
        | {"rows": bias_over_probability(alignment=alignment, exploration=exploration)}
        for scores, alignment in ALIGNMENTS.items()
        for exploration in EXPLORATIONS
    ]
    shape = {"n_graphs": N_GRAPHS, "n_queries": N_QUERIES, "n_keys": N_KEYS, "n_classes": N_CLASSES, "width": WIDTH}
    settings = {"probabilities": PROBABILITIES, **shape, "scatter_of_log_odds": 1.0}
    result = {"settings": settings, "parts": parts, "manifest": manifest()}
    write_json(ROOT / "results" / "ste_bias.json", result)
    print(ste_bias_table(json.loads(json.dumps(result))))


if __name__ == "__main__":
    run_command(main, "ste_bias")
