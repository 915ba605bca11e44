"""Untrained runs on a few made-up sentences, with a tokeniser trained on them."""

import numpy as np

from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.data.source import Examples
from sbmt.experiments.data.tokenizer import train_tokenizer
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.run import Run, Scores
from sbmt.experiments.training.tasks import GlueConfig, MlmConfig
from tests.experiments.plots.tiny_long_range import prepare_few, untrained

_WORDS = ("a", "film", "that", "cost", "$5", "is", "café", "中", "not", "good", "<s>", "films", "\\", "it 's")
TINY = {
    "length": 24,
    "batch_size": 4,
    "steps": 2,
    "warmup_steps": 1,
    "d_model": 8,
    "d_hidden": 8,
    "n_heads": 2,
    "n_layers": 2,
    "option_defaults": (("window", 2), ("n_clusters", 4)),
}


def tiny_tokenizer():
    """Bytes, and some words in one piece."""
    return train_tokenizer([f"{a} {b} {c}\n" for a in _WORDS for b in _WORDS for c in _WORDS[:4]], 290)


def _examples(task, n, seed):
    rng = np.random.default_rng(seed)
    shape = n, len(GLUE[task].texts)
    texts = [[" ".join(rng.choice(_WORDS, rng.integers(1, 12))) for _ in range(shape[1])] for _ in range(n)]
    labels = rng.integers(0, len(GLUE[task].class_names), n).tolist()
    return Examples.of([tuple(text.encode() for text in row) for row in texts], labels)


def tiny_glue_run(task, cache, **settings):
    """A run whose weights are those of the start, with its data prepared in ``cache / task``."""
    prepared = prepare_few(cache, task, _examples, GLUE[task].class_names, 257, 1)
    tiny_tokenizer().save(cache / "tokenizer.json")
    config = GlueConfig(task=task, tokenizer=str(cache / "tokenizer.json"), **TINY).override(**settings)
    return untrained(config, prepared), prepared


def tiny_mlm_run():
    """A masked language model of no corpus."""
    tokenizer = tiny_tokenizer()
    config = MlmConfig(**TINY)
    info = {"vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.sha256, "class_names": ["text"]}
    test = Scores(5.0, 0.1, 0.25, 0.25, [[0.25] * 2] * 2, {"perplexity": 148.4})
    rows = [{"step": 2, "split": "dev", "loss": 5.0, "accuracy": 0.1, "density": 0.25}]
    return Run(config, build_model(config, info), rows, test, {"data": info, "n_test": 3}, 1.0, tokenizer)
