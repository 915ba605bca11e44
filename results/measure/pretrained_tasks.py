"""What a sentence encoder's answers lose under sampled masks; writes ``results/pretrained_tasks.json``.

QQP asks which pairs of questions mean the same, answered by the cosine of their embeddings; SST-2 whether a sentence is
positive, answered by a logistic regression on embeddings under full attention. Masks are fitted to training texts of
the task, anew for each seed; what was measured is kept in ``runs/pretrained``.
"""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from results.measure.common import RUNS
from results.measure.pretrained import MEASURED_ON, STEPS, encoder, under_masks
from sbmt.experiments.data.glue import GlueRows, read_glue
from sbmt.experiments.data.locate import data_folder
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.sparsification.pretrained import embed, tokenize

TABLES = {"qqp": ("QQP", "train_subset", "dev_subset"), "sst2": ("SST-2", "train", "dev")}
CASES = [(task, c) for task in TABLES for c in (8, 16)]
LENGTH, BATCH, CLASSIFIED_ON = 128, 16, 2000
CLUSTERS = 256  # of a head: the texts are short

Metric = Callable[[NDArray[Any], NDArray[Any]], float]
METRICS: dict[str, Metric] = {
    "qqp": average_precision_score,
    "sst2": lambda labels, scores: float(((scores > 0) == labels).mean()),
}


def table(task: str, part: int) -> GlueRows:
    """The training rows (1) or the rows that are asked about (2)."""
    folder, *stems = TABLES[task]
    return read_glue(data_folder() / "glue" / folder / f"{stems[part - 1]}.tsv.gz", task)


def measure(task: str, c: int, seed: int) -> dict[str, Any]:
    """Scores of all items, cosines to full attention's embeddings and shares of pairs, by kind of mask."""
    model, tokenizer = encoder()
    train, asked = table(task, 1), table(task, 2)
    texts = [text for place in zip(*asked.texts, strict=True) for text in place]  # first questions, then second ones
    enough = (STEPS + MEASURED_ON) * BATCH
    others = [row[0] for row in train.texts if not set(row) & set(texts)][:enough]
    if task == "sst2":
        rows = slice(-CLASSIFIED_ON, None)
        known = embed(model, tokenize(tokenizer, [row[0] for row in train.texts[rows]], LENGTH, BATCH))
        classifier = LogisticRegression(C=10.0, max_iter=1000).fit(known.numpy(), train.labels[rows])
    found: dict[str, Any] = {}
    batches = (tokenize(tokenizer, part, LENGTH, BATCH) for part in (texts, others))
    for kind, density, embedded in under_masks(*batches, seed, edges_per_query=float(c), n_clusters=CLUSTERS):
        if task == "sst2":
            scores = torch.from_numpy(classifier.decision_function(embedded.numpy()))
        else:
            first, second = embedded.chunk(2)
            scores = (first * second).sum(-1)
        full = full if found else embedded
        cosine = float((embedded * full).sum(-1).mean())
        found[kind] = {"density": density, "cosine": cosine, "scores": scores.tolist()}
    return found


def kept(task: str, c: int, seed: int) -> dict[str, Any]:
    """What :func:`measure` finds, or found in an earlier run of this script."""
    path = RUNS / "pretrained" / f"{task}-{c}-seed{seed}.json"
    if not path.exists():
        write_json(path, measure(task, c, seed))
    found: dict[str, Any] = read_json(path)
    return found
