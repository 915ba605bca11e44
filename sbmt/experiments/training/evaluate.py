"""A model's answers to single examples, in training and afterwards."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.glue import GLUE, GlueRows, encode_split
from sbmt.experiments.data.prepared import divide
from sbmt.experiments.data.source import Examples
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.generated import TEST_SEED
from sbmt.experiments.training.run import Run, Scores
from sbmt.experiments.training.tasks import GlueConfig
from sbmt.models import ModelOutput
from sbmt.sparsification.fit import kept


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model's answers to test examples, in the order of the split.

    There is a label for each example, for each token of repeated tokens, or for each selected token of a language
    model. For pairs of documents, densities are means over the two.
    """

    predicted: Tensor  # (n_labels,), the likeliest labels
    labels: Tensor  # (n_labels,)
    losses: Tensor  # (n_labels,), cross entropy in nats
    densities: Tensor  # (n_examples, layers, heads), share of pairs attended
    loss: float  # means over all labels
    accuracy: float
    density: float  # means over all examples, layers and heads
    expected_density: float  # of edge probabilities
    metrics: dict[str, float]  # F1 of several kinds on GLUE; ``perplexity`` of language models
    extras: dict[str, NDArray[Any]]  # further numbers per prepared example, such as its difficulty

    @property
    def n_examples(self) -> int:
        """The number of examples."""
        return len(self.densities)

    @property
    def scores(self) -> Scores:
        """The means, as in results."""
        densities = self.densities.double().mean(0).tolist()
        return Scores(self.loss, self.accuracy, self.density, self.expected_density, densities, self.metrics)


@torch.no_grad()
def evaluate(run: Run, n_examples: int | None = None, *, n_samples: int = 1, seed: int = 0) -> Evaluation:
    """Runs a model, on any device, on the first test examples; None means all, or as many as training was tested on.

    Logits are means over ``n_samples`` draws of the masks (the mean in Theorem 1); the seed is that of masks and of
    generated sequences.
    """
    if not isinstance(seed, int) or not 0 <= seed < 1 << 62:  # the seed of the sequences lies above it
        raise SbmtError("seed in [0, 2⁶²)", seed, "give a non-negative integer")
    check_sizes(n_samples=n_samples, **({} if n_examples is None else {"n_examples": n_examples}))
    config = run.config
    data = config.open_data(run.tokenizer, seed)
    trained_on, do = run.about.get("data", {}), "prepare the data that the run was trained on"
    for name in ("sha256", "vocab_size", "first_id", "class_names"):
        if data.info.get(name) != trained_on.get(name):
            what = "checksum" if name == "sha256" else name
            raise SbmtError(f"examples with {what} {trained_on.get(name)}", data.info.get(name), do)
    feed = data.feeds["test"]
    stream = BatchStream(feed, feed.in_order(config.evaluation_batch, n_examples))
    first = 2 * TEST_SEED if config.is_generated else 0  # far from the seeds of sequences
    found = joined(config, [mine for _, mine in _answers(run, stream, first + seed, n_samples)])
    extras = data.splits["test"].extras if data.splits else {}
    return replace(found, extras={name: np.asarray(x[: found.n_examples]) for name, x in extras.items()})


@torch.no_grad()
def predict_labels(run: Run, rows: GlueRows, *, n_samples: int = 1, seed: int = 0) -> NDArray[np.int64]:
    """The label with the largest logit for every row of a table of the run's GLUE task, in order."""
    check_seed(seed)
    check_sizes(n_samples=n_samples)
    config, tokenizer = cast(GlueConfig, run.config), run.tokenizer
    assert tokenizer is not None  # every run on GLUE has one
    documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
    split = divide(Examples.of(documents, [0] * len(documents)), {"": np.arange(len(documents))})[""]
    feed = config.feed(tokenizer, encode_split(split, tokenizer, config.length)[0])
    order = feed.once(32, None)
    predicted = np.empty(len(documents), np.int64)
    for number, (answer, *_) in _answers(run, BatchStream(feed, order), seed, n_samples):
        predicted[order(number)] = answer.numpy()
    return predicted


def submission(task: str, rows: GlueRows, predicted: NDArray[np.int64]) -> str:
    r"""The file that GLUE's server expects: a line per row of the test table, with its number and the label's name.

    Example:
        >>> rows = GlueRows((("good",), ("bad",)), None, ("0", "1"), 0, 0)
        >>> submission("sst2", rows, np.array([1, 0])).splitlines()[1:]
        ['0\t1', '1\t0']
    """
    safe = [f"'{i}" if i.startswith(("=", "+", "-", "@")) else i for i in rows.index]  # not a spreadsheet formula
    lines = [f"{i}\t{GLUE[task].written[label]}" for i, label in zip(safe, predicted.tolist(), strict=True)]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def inputs(batch: Batch) -> dict[str, Any]:
    """The arguments of a model for a batch; without a mask where all tokens are real."""
    found: dict[str, Any] = {"tokens": batch.tokens, "mask": None if bool(batch.mask.all()) else batch.mask}
    return found if batch.selected is None else found | {"selected": batch.selected}


def answers(config: TrainingConfig, batch: Batch, outputs: Sequence[ModelOutput]) -> tuple[Tensor, ...]:
    """Answers to a batch in the order of :class:`Evaluation`, from the mean over outputs with different masks."""
    logits = torch.stack([output.values for output in outputs]).mean(0)
    n_documents = batch.mask[0].numel() // batch.mask.shape[-1]
    found = [config.predict(logits), batch.labels, config.loss(logits, batch.labels, "none")]
    for name in ("density", "expected_density"):
        # samples layers documents heads
        drawn = torch.stack([torch.stack([getattr(a, name) for a in o.attention]) for o in outputs])
        found.append(drawn.mean(0).transpose(0, 1).unflatten(0, (-1, n_documents)).mean(1))
    return tuple(x.cpu() for x in found)


def joined(config: TrainingConfig, parts: Sequence[tuple[Tensor, ...]]) -> Evaluation:
    """The answers to all batches together; SbmtError if there is no label among them."""
    predicted, labels, losses, densities, expected = (torch.cat(part) for part in zip(*parts, strict=True))
    if not len(labels):  # a few blocks may have no hidden token
        raise SbmtError("a label to predict among the examples", "none", "take more examples")
    means = (float(x.double().mean()) for x in (losses, predicted == labels, densities, expected))
    loss, accuracy, density, expected_density = means
    metrics = config.f1_of(predicted, labels) | config.metrics_of(loss)
    return Evaluation(predicted, labels, losses, densities, loss, accuracy, density, expected_density, metrics, {})


def _answers(run: Run, stream: Iterable[Batch], seed: int, n_samples: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """The number of every batch and the answers to it over ``n_samples`` draws of the masks."""
    generator = torch.Generator().manual_seed(seed)
    device = next(run.model.parameters()).device
    with kept(run.model.modules(), "training"):
        run.model.eval()
        for batch in stream:
            batch = batch.to(device)
            outputs = [run.model(**inputs(batch), generator=generator) for _ in range(n_samples)]
            if not all(output.values.isfinite().all() for output in outputs):
                raise SbmtError("weights that give finite logits", "infinity or NaN", "restore the run, or train again")
            yield batch.number, answers(run.config, batch, outputs)
