"""Measures how sampled masks affect a sentence encoder on two tasks; writes ``results/pretrained_tasks.json``.

On QQP, question pairs are ranked by the cosine of their embeddings, to find those of equal meaning. On SST-2, logistic
regression, trained on embeddings with full attention, finds positive sentences. Masks are fitted to training texts of
each task; in one case, the encoder is also distilled. Measurements are kept in ``runs/pretrained``.
"""

from functools import cache, partial
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from results.measure.common import N_RESAMPLES, kept, run, write
from results.measure.encoder import MEASURED_ON, N_FITS, STEPS, encoder, fitted, under_masks
from sbmt.experiments.data.glue import GlueRows, read_glue
from sbmt.experiments.data.locate import data_folder
from sbmt.experiments.sparsification.compare import FULL
from sbmt.experiments.sparsification.pretrained import embed, tokenize

TABLES = {"qqp": ("QQP/train_subset", "QQP/dev_subset"), "sst2": ("SST-2/train", "SST-2/dev")}
ASKED = {"qqp": 500, "sst2": 872}
CASES = ("qqp", 4, 0), ("sst2", 4, 0), ("qqp", 8, 150), ("sst2", 8, 0)
"""Task, edges per query, and steps of distillation."""
LENGTH, BATCH, CLUSTERS, CLASSIFIED_ON = 128, 16, 256, 2000
METRICS: dict[str, Any] = {"qqp": average_precision_score, "sst2": lambda y, score: float(((score > 0) == y).mean())}


def rows(task: str, is_asked: bool) -> GlueRows:
    """Returns the rows for testing masks if ``is_asked`` is true, and the training rows otherwise."""
    return read_glue(data_folder() / "glue" / f"{TABLES[task][is_asked]}.tsv.gz", task)


@cache
def classifier() -> LogisticRegression:
    """Trains a classifier of positive sentences on embeddings with full attention."""
    model, tokenizer = encoder()
    train = rows("sst2", False)
    batches = tokenize(tokenizer, [text for (text,) in train.texts[-CLASSIFIED_ON:]], LENGTH, BATCH)
    return LogisticRegression(C=10.0, max_iter=1000).fit(embed(model, batches).numpy(), train.labels[-CLASSIFIED_ON:])


def measure(task: str, c: int, distilled: int, seed: int) -> dict[str, Any]:
    """Returns, for each kind of mask, the scores of all items, the density, and the mean cosine to full attention."""
    columns = zip(*rows(task, True).texts[: ASKED[task]], strict=True)
    texts = [text for column in columns for text in column]  # all first questions, then all second ones
    others = [row[0] for row in rows(task, False).texts if not set(row) & set(texts)][: (STEPS + MEASURED_ON) * BATCH]
    batches, fitted_on = (tokenize(encoder()[1], part, LENGTH, BATCH) for part in (texts, others))
    sparse = fitted(fitted_on, seed, edges_per_query=float(c), n_clusters=CLUSTERS)
    found = {}
    for kind, masked, density in under_masks(sparse, fitted_on[:MEASURED_ON], fitted_on[MEASURED_ON:][:distilled]):
        embedded = embed(masked, batches)
        full = embedded if kind == FULL else full
        first, second = embedded.chunk(2)
        scores = classifier().decision_function(embedded) if task == "sst2" else (first * second).sum(-1).numpy()
        cosine = (embedded * full).sum(-1).mean().item()
        found[kind] = {"density": density, "cosine": cosine, "scores": scores.tolist()}
    return found


def lost(metric: Any, y: NDArray[Any], full: NDArray[Any], others: NDArray[Any]) -> dict[str, float]:
    """Returns the bounds of the middle 95 % of the loss due to a mask, resampling items and seeds with replacement."""
    draw, missed = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        i = draw.integers(len(y), size=len(y))
        seeds = draw.integers(len(others), size=len(others)) if len(others) > 1 else [0]
        of_seed = {seed: metric(y[i], others[seed][i]) for seed in set(seeds)}
        missed.append(metric(y[i], full[i]) - mean(of_seed[seed] for seed in seeds))
    low, high = np.quantile(missed, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def main() -> None:
    """Measures all cases and writes the result file."""
    cases = []
    for task, c, distilled in track(CASES, "tasks"):
        y, metric = rows(task, True).labels[: ASKED[task]], METRICS[task]
        place, fit = f"pretrained/{task}-{c}-seed", partial(measure, task, c, distilled)
        seeds = [kept(f"{place}{seed}.json", partial(fit, seed)) for seed in range(N_FITS)]
        kinds = []
        for kind in seeds[0]:
            scores = np.asarray([seed[kind]["scores"] for seed in seeds])
            full = scores[0] if kind == FULL else full
            density, cosine = (mean(seed[kind][name] for seed in seeds) for name in ("density", "cosine"))
            numbers = {"density": density, "cosine": {"mean": cosine}, "found": mean(metric(y, x) for x in scores)}
            kinds.append({"kind": kind, **numbers, "lost": lost(metric, y, full, scores)})
        title = f"{TABLES[task][0].partition('/')[0]}, c = {c}"
        cases.append({"title": title, "n_items": len(y), "distilled": distilled, "n_fits": N_FITS, "kinds": kinds})
    write("pretrained_tasks", {"cases": cases})


if __name__ == "__main__":
    run(main, "pretrained_tasks")
