"""Fitted masks for a run that was trained with full attention, compared by the accuracy of its task."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.manifest import manifest
from sbmt.experiments.sparsification.compare import KINDS, Bar, Found, OnStep, compare, table
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import evaluate, inputs
from sbmt.experiments.training.run import Run, load_run
from sbmt.sparsification.convert import DIFFERENT, sparsify
from sbmt.sparsification.fit import fit_block_models

BATCH = 16
TUNED_ON = 4  # batches of training examples on which masks are brought to equal density, and measured


def examples(run: Run, seed: int) -> Iterator[Batch]:
    """Batches of a run's training examples, endlessly, in an order given by the seed."""
    feed = run.config.open_data(run.tokenizer).feeds["train"]
    return iter(BatchStream(feed, feed.endless(BATCH, seed)))


def fit_run(run: Run, edges_per_query: float, steps: int, on_step: OnStep | None = None, **options: Any) -> Run:
    """A run trained with full attention, with fitted masks in its place, fitted on its training examples, and tested.

    ``options`` of the attention replace those of :func:`~sbmt.sparsify`; see also :func:`~sbmt.fit_block_models`.
    """
    if run.config.attention != "full":
        raise SbmtError("a run trained with attention 'full'", repr(run.config.attention), "train one, or name another")
    settings = {"preset": "fitted"} | DIFFERENT | {"edges_per_query": edges_per_query} | options
    config = replace(run.config, attention="sbm", options=settings, option_defaults=(), density_weight=0.0)
    evaluate(run, 1)  # fails at once if the data are not those of the run
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        model = sparsify(run.model, **config.attention_arguments())
        batches = map(inputs, examples(run, seed=0))
        fitted = fit_block_models(model, batches, steps=steps, n_measured=1, on_step=on_step)
    rows = [{"split": "fit", "step": i, "auxiliary_loss": loss} for i, loss in enumerate(fitted.losses, 1)]
    about = {"data": run.about["data"]} if "data" in run.about else {}
    about |= {"sparsified": {"steps": steps, "accuracy": run.test.accuracy}}
    seconds = time.perf_counter() - start
    sparse = replace(run, config=config, model=model, rows=run.rows + rows, about=about, seconds=seconds)
    found = evaluate(sparse, config.n_examples("test"))
    baselines = config.baselines(config.open_data(run.tokenizer), "test", found)
    return replace(sparse, test=found.scores, about=about | baselines)


def compare_run(run: Run, sparse: Run, n_examples: int | None, on_kind: OnStep = lambda: None) -> dict[str, Any]:
    """Fitted masks from :func:`fit_run` beside every other kind of the same density, on ``n_examples`` of the test."""
    n_examples = n_examples or run.config.n_examples("test")
    full = evaluate(run, n_examples)

    def is_right(model: nn.Module) -> Tensor:
        found = evaluate(replace(sparse, model=model), n_examples)
        return found.predicted == found.labels

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        tuned_on = [inputs(batch) for batch in islice(examples(run, seed=1), TUNED_ON)]
        kinds = compare(run.model, sparse.model, tuned_on, "accuracy", is_right, on_kind)
    about = {"task": run.config.task, "length": run.config.length, "n_examples": full.n_examples}
    return about | {"full": {"accuracy": full.accuracy, "loss": full.loss}, "kinds": kinds, "manifest": manifest()}


def sparsify_run(run: Path, n_examples: int | None, steps: int, options: dict[str, Any], bar: Bar) -> Found:
    """A run with fitted masks, beside every other kind of mask."""
    if (run / "tokenizer_config.json").exists():
        raise SbmtError("--text FILE with a model of Transformers", "none", "give a file with one text per line")
    full = load_run(run)
    sparse = fit_run(full, steps=steps, on_step=bar("fit", steps), **options)
    result = compare_run(full, sparse, n_examples, bar("kinds of mask", len(KINDS)))
    note = f"Full attention: accuracy {full.test.accuracy:.4f}"
    return sparse.save, result, table(result["kinds"], "accuracy", note)
