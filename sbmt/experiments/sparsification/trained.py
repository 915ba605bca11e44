"""Fits masks to a run that was trained with full attention, and compares masks by the accuracy on its task."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.manifest import manifest
from sbmt.experiments.sparsification.compare import Track, compare
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import evaluate, inputs
from sbmt.experiments.training.run import Run
from sbmt.sparsification.convert import DIFFERENT, sparsify
from sbmt.sparsification.fit import fit_block_models

BATCH = 16
TUNED_ON = 4  # number of training batches on which masks are tuned to equal density and measured


def training_inputs(run: Run) -> Iterator[dict[str, Any]]:
    """Yields a model's inputs for batches of the run's training examples, endlessly."""
    feed = run.config.open_data(run.tokenizer).feeds["train"]
    return map(inputs, BatchStream(feed, feed.endless(BATCH, seed=0)))


def sparsify_run(
    run: Run, n_examples: int | None, steps: int, options: dict[str, Any], track: Track = lambda items, **_: items
) -> tuple[Run, dict[str, Any]]:
    """Fits masks to a run with full attention, and compares them with other masks of the same density.

    Masks are fitted on training examples and compared on ``n_examples`` test examples, by default as many as the run
    uses. ``options`` go to :func:`~sbmt.sparsify`. Returns the tested run with fitted masks, and the comparison.
    """
    if run.config.attention != "full":
        raise SbmtError("a run trained with attention 'full'", repr(run.config.attention), "choose another run")
    settings = {"preset": "fitted"} | DIFFERENT | options
    config = replace(run.config, attention="sbm", options=settings, option_defaults=(), density_weight=0.0)
    full = evaluate(run, n_examples or config.n_examples("test"))  # fails at once if the data are not those of the run

    def is_right(model: nn.Module) -> Tensor:
        found = evaluate(replace(run, config=config, model=model), full.n_examples)
        return found.predicted == found.labels

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = sparsify(run.model, **config.attention_arguments())
        batches = training_inputs(run)
        tuned_on = list(islice(batches, TUNED_ON))
        fitted = fit_block_models(model, track(batches, description="fit", total=steps + 1), steps=steps, n_measured=1)
        kinds = compare(run.model, model, tuned_on, "accuracy", is_right, track)
    rows = [{"split": "fit", "step": i, "auxiliary_loss": loss} for i, loss in enumerate(fitted.losses, 1)]
    about = {"data": run.about["data"]} if "data" in run.about else {}
    about |= {"sparsified": {"steps": steps, "accuracy": run.test.accuracy}}
    sparse = replace(run, config=config, model=model, rows=run.rows + rows, about=about)
    test = evaluate(sparse, config.n_examples("test"))
    baselines = config.baselines(config.open_data(run.tokenizer), "test", test)
    result = {"task": config.task, "length": config.length, "n_examples": full.n_examples}
    result |= {"full": {"accuracy": full.accuracy, "loss": full.loss}, "kinds": kinds, "manifest": manifest()}
    return replace(sparse, test=test.scores, about=about | baselines), result
