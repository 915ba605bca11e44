"""Evaluates models example by example, during and after training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.glue import GlueRows, encode_split
from sbmt.experiments.data.prepared import divide
from sbmt.experiments.data.source import Examples
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.generated import TEST_SEED
from sbmt.experiments.training.run import Run, Scores
from sbmt.experiments.training.tasks import GlueConfig
from sbmt.models import ModelOutput
from sbmt.sparsification.fit import kept


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(Scores):
    """The scores of a model, and its predictions for the test examples in the order of the split.

    Depending on the task, each example, each token or each selected token has a label. For pairs of documents, the
    densities are means over both documents.
    """

    predicted: Tensor  # (n_labels,), the most likely labels
    labels: Tensor  # (n_labels,)
    losses: Tensor  # (n_labels,), cross entropy in nats
    example_densities: Tensor  # (n_examples, layers, heads), share of pairs in the mask

    @property
    def n_examples(self) -> int:
        """Number of examples that were evaluated."""
        return len(self.example_densities)

    @property
    def scores(self) -> Scores:
        """The scores, without the results for single examples."""
        return Scores(**{f.name: getattr(self, f.name) for f in fields(Scores)})


@torch.no_grad()
def evaluate(run: Run, n_examples: int | None = None, *, n_samples: int = 1, seed: int = 0) -> Evaluation:
    """Evaluates a run's model on the first ``n_examples`` test examples, or by default on the whole test split.

    Logits are means over ``n_samples`` draws of the masks (the mean in Theorem 1). The seed determines the masks, and
    the sequences if they are generated.
    """
    check_seed(seed)
    check_sizes(n_samples=n_samples, **({} if n_examples is None else {"n_examples": n_examples}))
    config = run.config
    data = config.open_data(run.tokenizer, seed)
    found, wanted = data.info.get("sha256"), run.about.get("data", {}).get("sha256")
    if found != wanted:
        raise SbmtError(f"examples with checksum {wanted}", found, "prepare the data that the run used")
    feed = data.feeds["test"]
    stream = BatchStream(feed, feed.in_order(config.evaluation_batch, n_examples))
    first = 2 * TEST_SEED if config.is_generated else 0  # far from the seeds of the sequences
    return joined(config, list(_answers(run, stream, first + seed, n_samples)))


@torch.no_grad()
def predict_labels(run: Run, rows: GlueRows, *, n_samples: int = 1, seed: int = 0) -> list[int]:
    """Predicts the label of every row in a table of the run's GLUE task, in order."""
    check_seed(seed)
    check_sizes(n_samples=n_samples)
    config, tokenizer = cast(GlueConfig, run.config), run.tokenizer
    assert tokenizer is not None  # every GLUE run has a tokeniser
    documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
    split = divide(Examples.of(documents, [0] * len(documents)), {"": np.arange(len(documents))})[""]
    feed = config.feed(tokenizer, encode_split(split, tokenizer, config.length)[0])
    answers = _answers(run, BatchStream(feed, feed.in_order(32, None)), seed, n_samples)
    return torch.cat([predicted for predicted, *_ in answers]).tolist()


def inputs(batch: Batch) -> dict[str, Any]:
    """Returns a model's arguments for a batch, where the mask is None if all tokens are real."""
    found: dict[str, Any] = {"tokens": batch.tokens, "mask": None if bool(batch.mask.all()) else batch.mask}
    return found if batch.selected is None else found | {"selected": batch.selected}


def answers(config: TrainingConfig, batch: Batch, outputs: Sequence[ModelOutput]) -> tuple[Tensor, ...]:
    """Returns predictions, labels, losses and densities for a batch, averaged over outputs with different masks."""
    logits = torch.stack([output.values for output in outputs]).mean(0)
    n_documents = batch.mask[0].numel() // batch.mask.shape[-1]
    found = [config.predict(logits), batch.labels, config.loss(logits, batch.labels, "none")]
    for name in ("density", "expected_density"):
        # samples layers documents heads
        drawn = torch.stack([torch.stack([getattr(a, name) for a in o.attention]) for o in outputs])
        found.append(drawn.mean(0).transpose(0, 1).unflatten(0, (-1, n_documents)).mean(1))
    return tuple(x.cpu() for x in found)


def joined(config: TrainingConfig, parts: Sequence[tuple[Tensor, ...]]) -> Evaluation:
    """Combines the answers for all batches into one evaluation. Answers without any label raise SbmtError."""
    predicted, labels, losses, densities, expected = (torch.cat(part) for part in zip(*parts, strict=True))
    if not len(labels):  # a few blocks may have no hidden token
        raise SbmtError("at least one label to predict", "none", "evaluate more examples")
    each: dict[str, Any] = {"predicted": predicted, "labels": labels, "losses": losses, "example_densities": densities}
    samples = {"loss": losses, "accuracy": predicted == labels, "density": densities, "expected_density": expected}
    means: dict[str, Any] = {name: float(x.double().mean()) for name, x in samples.items()}
    metrics = config.metrics_of(means["loss"], predicted, labels)
    return Evaluation(**means, densities=densities.double().mean(0).tolist(), metrics=metrics, **each)


def _answers(run: Run, stream: Iterable[Batch], seed: int, n_samples: int) -> Iterator[tuple[Tensor, ...]]:
    """Yields the answers for every batch, averaged over ``n_samples`` draws of the masks."""
    generator = torch.Generator().manual_seed(seed)
    device = next(run.model.parameters()).device
    with kept(run.model.modules(), "training"):
        run.model.eval()
        for batch in stream:
            batch = batch.to(device)
            outputs = [run.model(**inputs(batch), generator=generator) for _ in range(n_samples)]
            yield answers(run.config, batch, outputs)
