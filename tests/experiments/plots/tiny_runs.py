"""Untrained runs on a few made-up examples of every kind, so that pictures of them cost no training."""

import numpy as np

from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.source import Examples, Source
from sbmt.experiments.data.tokenizer import train_tokenizer
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.run import Run, Scores, describe
from sbmt.experiments.training.tasks import GlueConfig, LongRangeConfig, MlmConfig

N_TEST = 20
TINY = {"batch_size": 4, "steps": 2, "warmup_steps": 1, "d_model": 8, "d_hidden": 8}
TINY_LANGUAGE = TINY | {"length": 24, "n_heads": 2, "n_layers": 2}
TINY_LANGUAGE["option_defaults"] = (("window", 2), ("n_clusters", 4))
_TEXT = b"a $5 film,\r\n$6 with <br /> it \\ \x00 ~ \xc3\xa9"
_WORDS = ("a", "film", "that", "cost", "$5", "is", "café", "中", "not", "good", "<s>", "films", "\\", "it 's")


def _document(task, rng):
    if task == "listops":
        return rng.integers(1, 16, rng.integers(5, 30)).astype(np.uint8).tobytes()
    if task == "image":
        return rng.integers(0, 256, 64).astype(np.uint8).tobytes()
    return (_TEXT * 2)[rng.integers(0, 20) :][: rng.integers(8, 40)]


def _examples(task, n, seed):
    rng = np.random.default_rng(seed)
    n_documents = 2 if task == "retrieval" else 1
    documents = [tuple(_document(task, rng) for _ in range(n_documents)) for _ in range(n)]
    if n_documents == 2:
        documents[0] = documents[0][0], b""
    extras = {"turns": rng.random(n), "side": rng.integers(0, 2, n)} if task == "listops" else {}
    examples = Examples.of(documents, rng.integers(0, 2, n).tolist())
    return Examples(examples.symbols, examples.lengths, examples.labels, extras)


def _sentences(task, n, seed):
    rng = np.random.default_rng(seed)
    shape = n, len(GLUE[task].texts)
    texts = [[" ".join(rng.choice(_WORDS, rng.integers(1, 12))) for _ in range(shape[1])] for _ in range(n)]
    labels = rng.integers(0, len(GLUE[task].class_names), n).tolist()
    return Examples.of([tuple(text.encode() for text in row) for row in texts], labels)


def tiny_tokenizer():
    """Bytes, and some words in one piece."""
    return train_tokenizer([f"{a} {b} {c}\n" for a in _WORDS for b in _WORDS for c in _WORDS[:4]], 290)


def tiny_run(task, cache, **settings):
    """A run on a long-range task, with its data prepared in ``cache / task``."""
    is_bytes = task in ("text", "retrieval")
    vocab_size = {"listops": 17}.get(task, 257 if is_bytes else 256)
    prepared = _prepare(cache, task, _examples, ("no", "yes"), vocab_size, int(is_bytes))
    small = TINY | {"length": 64 if task == "image" else 32, "option_defaults": (("n_clusters", 4),)}
    return _untrained(LongRangeConfig(task=task, **small).override(**settings), prepared), prepared


def tiny_glue_run(task, cache, **settings):
    """A run on a task of GLUE, with its data prepared in ``cache / task``."""
    prepared = _prepare(cache, task, _sentences, GLUE[task].class_names, 257, 1)
    tiny_tokenizer().save(cache / "tokenizer.json")
    config = GlueConfig(task=task, tokenizer=str(cache / "tokenizer.json"), **TINY_LANGUAGE).override(**settings)
    return _untrained(config, prepared), prepared


def tiny_mlm_run():
    """A masked language model of no corpus."""
    tokenizer = tiny_tokenizer()
    config = MlmConfig(**TINY_LANGUAGE)
    info = {"vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer.sha256, "class_names": ["text"]}
    test = Scores(5.0, 0.1, 0.25, 0.25, [[0.25] * 2] * 2, {"perplexity": 148.4})
    rows = [{"step": 2, "split": "dev", "loss": 5.0, "accuracy": 0.1, "density": 0.25}]
    return Run(config, build_model(config, info), rows, test, {"data": info, "n_test": 3}, 1.0, tokenizer)


def _prepare(cache, task, make, class_names, vocab_size, first_id):
    sizes = {"train": 6, "dev": 4, "test": N_TEST}
    fields = class_names, vocab_size, first_id, {}
    source = Source(task, task, "generated", *fields, lambda: ((s, make(task, n, len(s))) for s, n in sizes.items()))
    return prepare(source, cache)


def _untrained(config, prepared):
    """A run as if it were finished, with the weights of the start."""
    rows = [{"step": 2, "split": "dev", "loss": 0.7, "accuracy": 0.5, "density": 0.25}]
    test = Scores(0.7, 0.5, 0.25, 0.25, [[0.25] * config.n_heads] * config.n_layers)
    data = config.open_data(prepared=prepared)
    about = describe(config, data, rows, {"test": test})
    return Run(config, build_model(config, data.info), rows, test, about, 1.0, data.tokenizer)
