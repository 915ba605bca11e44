"""How well counting shared words separates the reduced retrieval pairs: what a model would have to reach.

``python results/measure/retrieval_ceiling.py`` writes ``results/retrieval_ceiling.json``; it needs the prepared pairs
(``sbmt data prepare retrieval``) and takes seconds.
"""

import json
import re
from collections import Counter
from math import log, sqrt
from pathlib import Path

import numpy as np

from sbmt.command import run_command
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Split, open_prepared
from sbmt.experiments.files import write_json
from sbmt.experiments.training.run import manifest

LENGTHS = (256, 512, 1024, 10_000)
WORD = re.compile(rb"[a-z0-9']+")


def words(split: Split, length: int) -> list[list[Counter[bytes]]]:
    """How often each word occurs in the first bytes of every document."""
    pairs = (split.documents(i) for i in range(len(split)))
    return [[Counter(WORD.findall(d[:length].tobytes().lower())) for d in pair] for pair in pairs]


def similarities(pairs: list[list[Counter[bytes]]], rarity: dict[bytes, float]) -> np.ndarray:
    """Cosine of the two documents' words, each weighted by how few training documents have it."""

    def weighted(counts: Counter[bytes]) -> dict[bytes, float]:
        return {word: (1 + log(n)) * rarity[word] for word, n in counts.items() if word in rarity}

    found = []
    for pair in pairs:
        x, y = (weighted(counts) for counts in pair)
        norms = [sqrt(sum(w * w for w in v.values())) or 1.0 for v in (x, y)]
        found.append(sum(w * y.get(word, 0.0) for word, w in x.items()) / (norms[0] * norms[1]))
    return np.array(found)


def accuracy(train: Split, test: Split, length: int) -> float:
    """Accuracy on test with the threshold that is best on train."""
    known, unseen = words(train, length), words(test, length)
    documents = Counter(word for pair in known + unseen for counts in pair for word in counts)
    n = 2 * (len(known) + len(unseen))
    rarity = {word: log(n / count) for word, count in documents.items()}
    scores, labels = similarities(known, rarity), np.asarray(train.labels)
    threshold = max(np.unique(scores), key=lambda t: ((scores >= t) == labels).mean())
    return float(((similarities(unseen, rarity) >= threshold) == test.labels).mean())


def main() -> None:
    """Measures and writes."""
    prepared = open_prepared(prepared_folder() / "retrieval-films")
    splits = prepared.splits["train"], prepared.splits["test"]
    found = {str(length): round(accuracy(*splits, length), 4) for length in LENGTHS}
    path = Path(__file__).parents[1] / "retrieval_ceiling.json"
    write_json(path, {"data": prepared.info["sha256"], "accuracy": found, "manifest": manifest()})
    print(json.dumps(found))


if __name__ == "__main__":
    run_command(main, "retrieval_ceiling")
