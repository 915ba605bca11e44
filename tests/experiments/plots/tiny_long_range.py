"""Untrained runs on a few made-up examples of every kind, so that pictures of them cost no training."""

import numpy as np

from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.source import Examples, Source
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.run import Run, Scores, describe
from sbmt.experiments.training.tasks import LongRangeConfig

N_TEST = 20
_TEXT = b"a $5 film,\r\n$6 with <br /> it \\ \x00 ~ \xc3\xa9"


def _document(task, rng):
    if task == "listops":
        return rng.integers(1, 16, rng.integers(5, 30)).astype(np.uint8).tobytes()
    if task in ("image", "pathfinder"):
        return rng.integers(0, 256, 64).astype(np.uint8).tobytes()
    return (_TEXT * 2)[rng.integers(0, 20) :][: rng.integers(8, 40)]


def _examples(task, n, seed):
    rng = np.random.default_rng(seed)
    n_documents = 2 if task == "retrieval" else 1
    documents = [tuple(_document(task, rng) for _ in range(n_documents)) for _ in range(n)]
    if n_documents == 2:
        documents[0] = documents[0][0], b""
    extras = {"turns": rng.random(n), "side": rng.integers(0, 2, n)} if task in ("listops", "pathfinder") else {}
    examples = Examples.of(documents, rng.integers(0, 2, n).tolist())
    return Examples(examples.symbols, examples.lengths, examples.labels, extras)


def tiny_run(task, cache, **settings):
    """A run whose weights are those of the start, with its data prepared in ``cache / task``."""
    is_bytes = task in ("text", "retrieval")
    vocab_size = {"listops": 17}.get(task, 257 if is_bytes else 256)
    prepared = prepare_few(cache, task, _examples, ("no", "yes"), vocab_size, int(is_bytes))
    small = {"length": 64 if task in ("image", "pathfinder") else 32, "d_model": 8, "d_hidden": 8}
    small["option_defaults"] = (("n_clusters", 4),)
    config = LongRangeConfig(task=task, batch_size=4, steps=2, warmup_steps=1, **small).override(**settings)
    return untrained(config, prepared), prepared


def prepare_few(cache, task, make, class_names, vocab_size, first_id):
    """Prepares what ``make(task, n, seed)`` makes in ``cache / task``."""
    sizes = {"train": 6, "dev": 4, "test": N_TEST}
    fields = class_names, vocab_size, first_id, {}
    source = Source(task, task, "generated", *fields, lambda: ((s, make(task, n, len(s))) for s, n in sizes.items()))
    return prepare(source, cache)


def untrained(config, prepared):
    """A run as if it were finished, with the weights of the start."""
    rows = [{"step": 2, "split": "dev", "loss": 0.7, "accuracy": 0.5, "density": 0.25}]
    heads = [[0.25] * config.n_heads] * config.n_layers
    test = Scores(0.7, 0.5, 0.25, 0.25, heads)
    data = config.open_data(prepared=prepared)
    model = build_model(config, data.info)
    return Run(config, model, rows, test, describe(config, data, rows, {"test": test}), 1.0, data.tokenizer)
