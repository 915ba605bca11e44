"""The loss in a sentence encoder's answers under sampled masks; writes ``results/pretrained_tasks.json``.

QQP asks which pairs of questions mean the same, answered by the cosine of their embeddings; SST-2 whether a sentence is
positive, answered by a logistic regression that learned from embeddings under full attention. Masks are fitted to
training texts of each task; in one case, the encoder is then distilled. What was measured is in ``runs/pretrained``.
"""

import copy
from functools import cache, partial
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from results.measure.common import N_RESAMPLES, kept, run, write
from results.measure.pretrained import MEASURED_ON, STEPS, encoder, fitted, under_masks
from sbmt.experiments.data.glue import GlueRows, read_glue
from sbmt.experiments.data.locate import data_folder
from sbmt.experiments.sparsification.compare import FITTED, FULL
from sbmt.experiments.sparsification.masks import CONTROLS
from sbmt.experiments.sparsification.pretrained import distil, embed, tokenize
from sbmt.sparsification import measure_masks

TABLES = {"qqp": ("QQP/train_subset", "QQP/dev_subset"), "sst2": ("SST-2/train", "SST-2/dev")}
ASKED = {"qqp": 500, "sst2": 872}
CASES = ("qqp", 8, False, 3), ("sst2", 8, False, 3), ("qqp", 8, True, 3), ("qqp", 16, False, 3), ("sst2", 16, False, 3)
"""Task, edges per query, whether the encoder is distilled, and seeds."""
LENGTH, BATCH, CLUSTERS, CLASSIFIED_ON, DISTILLATION_STEPS = 128, 16, 256, 2000, 150
DISTILLED = {"random": CONTROLS["random"]}  # what distilled fitted masks are compared with
METRICS: dict[str, Any] = {"qqp": average_precision_score, "sst2": lambda y, score: float(((score > 0) == y).mean())}


def rows(task: str, is_asked: bool) -> GlueRows:
    """The rows on which masks are tested, or training rows."""
    return read_glue(data_folder() / "glue" / f"{TABLES[task][is_asked]}.tsv.gz", task)


@cache
def classifier() -> LogisticRegression:
    """Recognises positive sentences by their embeddings under full attention."""
    model, tokenizer = encoder()
    train = rows("sst2", False)
    batches = tokenize(tokenizer, [text for (text,) in train.texts[-CLASSIFIED_ON:]], LENGTH, BATCH)
    return LogisticRegression(C=10.0, max_iter=1000).fit(embed(model, batches).numpy(), train.labels[-CLASSIFIED_ON:])


def measure(task: str, c: int, is_distilled: bool, seed: int) -> dict[str, Any]:
    """Scores of all items, the mean cosine to full attention's embeddings and the share of pairs, by kind of mask."""
    asked = rows(task, True).texts[: ASKED[task]]
    texts = [text for place in zip(*asked, strict=True) for text in place]  # first questions, then second ones
    others = [row[0] for row in rows(task, False).texts if not set(row) & set(texts)][: (STEPS + MEASURED_ON) * BATCH]
    batches, fitted_on = (tokenize(encoder()[1], part, LENGTH, BATCH) for part in (texts, others))
    sparse = fitted(fitted_on, seed, edges_per_query=float(c), n_clusters=CLUSTERS)
    found = {}
    for kind, masked, density in under_masks(sparse, fitted_on[:MEASURED_ON], DISTILLED if is_distilled else CONTROLS):
        if is_distilled and kind != FULL:
            masked = copy.deepcopy(masked)  # other masks are put into the network as it was
            torch.manual_seed(seed)
            distil(masked, encoder()[0], fitted_on[MEASURED_ON:], DISTILLATION_STEPS)
            if kind == FITTED:
                density = measure_masks(masked, fitted_on[:MEASURED_ON]).mean("density")
        embedded = embed(masked, batches)
        full = embedded if kind == FULL else full
        if task == "sst2":
            scores = classifier().decision_function(embedded.numpy())
        else:
            first, second = embedded.chunk(2)
            scores = (first * second).sum(-1).numpy()
        cosine = (embedded * full).sum(-1).mean().item()
        found[kind] = {"density": density, "cosine": cosine, "scores": scores.tolist()}
    return found


def lost(metric: Any, y: NDArray[Any], full: NDArray[Any], others: NDArray[Any]) -> dict[str, float]:
    """The middle 95 % of what a mask loses, over items and seeds drawn with replacement."""
    draw, missed = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        i = draw.integers(len(y), size=len(y))
        seeds = draw.integers(len(others), size=len(others)) if len(others) > 1 else [0]
        of_seed = {seed: metric(y[i], others[seed][i]) for seed in set(seeds)}
        missed.append(metric(y[i], full[i]) - mean(of_seed[seed] for seed in seeds))
    low, high = np.quantile(missed, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def main() -> None:
    """Measures and writes."""
    cases = []
    for task, c, is_distilled, n_seeds in track(CASES, "tasks"):
        y, metric = rows(task, True).labels[: ASKED[task]], METRICS[task]
        name = f"pretrained/{task}-{c}{'-distilled' * is_distilled}"
        seeds = [kept(f"{name}-seed{i}.json", partial(measure, task, c, is_distilled, i)) for i in range(n_seeds)]
        kinds = []
        for kind in seeds[0]:
            scores = np.asarray([seed[kind]["scores"] for seed in seeds])
            full = scores[0] if kind == FULL else full
            density, cosine = (mean(seed[kind][name] for seed in seeds) for name in ("density", "cosine"))
            numbers = {"density": density, "cosine": {"mean": cosine}, "found": mean(metric(y, x) for x in scores)}
            kinds.append({"kind": kind, **numbers, "lost": lost(metric, y, full, scores)})
        title = f"{TABLES[task][0].partition('/')[0]}, c = {c}{', distilled' * is_distilled}"
        cases.append({"title": title, "n_items": len(y), "n_seeds": n_seeds, "kinds": kinds})
    write("pretrained_tasks", {"distillation_steps": DISTILLATION_STEPS, "cases": cases})


if __name__ == "__main__":
    run(main, "pretrained_tasks")
