"""Small examples of every kind, which are the same in every run."""

import numpy as np

from sbmt.experiments.data.source import Examples, Source

SIZES = {"train-0": 20, "train-1": 17, "train-2": 11, "dev": 14, "test": 13}
KINDS = {  # task: class names, vocabulary, first id
    "listops": (("fewer", "more"), 6, 1),
    "text": (("fewer", "more"), 6, 1),
    "retrieval": (("apart", "together"), 6, 1),
    "image": (("left", "right"), 256, 0),
}


def toy_examples(task, n, seed):
    """Returns labels: more 1s than 2s? Pairs: first symbols of equal parity? Images: which half is brighter?"""
    rng = np.random.default_rng([seed, n])
    if task == "image":
        images = rng.integers(0, 256, (n, 8, 8)) * (rng.random((n, 8, 8)) < 0.7)
        labels = images[:, :, 4:].sum((1, 2)) > images[:, :, :4].sum((1, 2))
        documents = [(image.astype(np.uint8).tobytes(),) for image in images]
        return Examples.of(documents, labels.astype(int).tolist())
    n_documents = 2 if task == "retrieval" else 1
    documents = [
        tuple(bytes(rng.integers(0, 5, int(rng.integers(3, 20))).tolist()) for _ in range(n_documents))
        for _ in range(n)
    ]
    if task == "retrieval":
        labels = [int(x[0] % 2 == y[0] % 2) for x, y in documents]
    else:
        labels = [int(d.count(1) > d.count(2)) for (d,) in documents]
    return Examples.of(documents, labels, weight=[sum(map(len, ds)) / 2 for ds in documents])


def toy_source(task="listops", *, name=None, make=toy_examples, sizes=SIZES, **changes):
    """Returns a source with three parts of training examples and one part of each other split."""
    class_names, vocab_size, first_id = KINDS[task]
    fields = dict(origin="generated", class_names=class_names, vocab_size=vocab_size, first_id=first_id)
    fields |= dict(settings={"seed": 0}, parts=lambda: toy_parts(task, make, sizes))
    return Source(name=name or f"toy-{task}", task=task, **fields | changes)


def toy_parts(task, make, sizes):
    return ((part.split("-")[0], make(task, n, number)) for number, (part, n) in enumerate(sizes.items()))
