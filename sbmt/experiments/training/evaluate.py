"""What a trained model answers to test examples, one by one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.glue import GLUE, GlueRows, encode_split
from sbmt.experiments.data.prepared import divide
from sbmt.experiments.data.source import Examples
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.generated import TEST_SEED
from sbmt.experiments.training.run import Run
from sbmt.experiments.training.tasks import GlueConfig
from sbmt.models import ModelOutput
from sbmt.sparsification.fit import kept


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model's answers to test examples, in the order of the split.

    A label belongs to an example, of repeated tokens to a token, of a masked language model to a selected token. For
    pairs of documents, densities are means of the two.
    """

    predicted: Tensor  # (n_labels,), the likeliest labels
    labels: Tensor  # (n_labels,)
    losses: Tensor  # (n_labels,), cross entropy in nats
    densities: Tensor  # (n_examples, layers, heads), share of pairs attended
    expected_densities: Tensor  # of the same shape, mean edge probability
    extras: dict[str, NDArray[Any]]  # what the prepared examples say besides, such as how difficult each one is
    metrics: dict[str, float]  # the mean loss in other words, such as ``perplexity``

    @property
    def n_examples(self) -> int:
        """How many examples."""
        return len(self.densities)

    @property
    def accuracy(self) -> float:
        """Share of labels that are right."""
        return float((self.predicted == self.labels).double().mean())

    @property
    def loss(self) -> float:
        """Mean cross entropy."""
        return float(self.losses.double().mean())

    @property
    def density(self) -> float:
        """Mean over examples, layers and heads."""
        return float(self.densities.double().mean())

    @property
    def expected_density(self) -> float:
        """The same of edge probabilities."""
        return float(self.expected_densities.double().mean())


@torch.no_grad()
def evaluate(run: Run, n_examples: int | None = None, *, n_samples: int = 1, seed: int = 0) -> Evaluation:
    """Runs a model, on any device, on the first test examples; None means all, or as many as training was tested on.

    Logits are means over ``n_samples`` draws of the masks (Theorem 1 speaks of that mean); the seed is of masks and
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
    found: list[tuple[Tensor, ...]] = []
    first = 2 * TEST_SEED if config.is_generated else 0  # far from the seeds of sequences
    for batch, logits, *densities in _answers(run.model, stream, first + seed, n_samples):
        found.append((config.predict(logits), batch.labels, config.loss(logits, batch.labels, "none"), *densities))
    predicted, labels, losses, attended, expected = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    if not len(labels):  # a few blocks may have no token to be guessed
        raise SbmtError("a label to be guessed among the examples", "none", "take more examples")
    extras = {name: np.asarray(values[: len(attended)]) for name, values in data.extras.items()}
    metrics = config.metrics_of(float(losses.double().mean()))
    return Evaluation(predicted, labels, losses, attended, expected, extras, metrics)


@torch.no_grad()
def predict_labels(run: Run, rows: GlueRows, *, n_samples: int = 1, seed: int = 0) -> NDArray[np.int64]:
    """The label with the largest logit for every row of a table of the run's GLUE task, in their order."""
    check_seed(seed)
    check_sizes(n_samples=n_samples)
    config, tokenizer = cast(GlueConfig, run.config), run.tokenizer
    assert tokenizer is not None  # every run on GLUE has one
    documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
    split = divide(Examples.of(documents, [0] * len(documents)), {"": np.arange(len(documents))})[""]
    feed = config.feed(tokenizer, encode_split(split, tokenizer, config.length)[0])
    order = feed.once(32, None)
    predicted = np.empty(len(documents), np.int64)
    for batch, logits, *_ in _answers(run.model, BatchStream(feed, order), seed, n_samples):
        predicted[order(batch.number)] = logits.argmax(-1).cpu().numpy()
    return predicted


def submission(task: str, rows: GlueRows, predicted: NDArray[np.int64]) -> str:
    r"""The file that GLUE's server takes: a line per row of the test table, with its number and the label's name.

    Example:
        >>> rows = GlueRows((("good",), ("bad",)), None, ("0", "1"), 0, 0)
        >>> submission("sst2", rows, np.array([1, 0])).splitlines()[1:]
        ['0\t1', '1\t0']
    """
    safe = [f"'{i}" if i.startswith(("=", "+", "-", "@")) else i for i in rows.index]  # no formula for a spreadsheet
    lines = [f"{i}\t{GLUE[task].written[label]}" for i, label in zip(safe, predicted.tolist(), strict=True)]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def inputs(batch: Batch) -> dict[str, Any]:
    """What a model of the library is called with; no mask where all tokens are real."""
    found: dict[str, Any] = {"tokens": batch.tokens, "mask": None if bool(batch.mask.all()) else batch.mask}
    return found if batch.selected is None else found | {"selected": batch.selected}


def call_model(model: nn.Module, batch: Batch, generator: torch.Generator) -> ModelOutput:
    """Runs a model on a batch."""
    named = inputs(batch)
    output: ModelOutput = model(named.pop("tokens"), named.pop("mask"), generator=generator, **named)
    return output


def _answers(
    model: nn.Module, batches: Iterable[Batch], seed: int, n_samples: int
) -> Iterator[tuple[Batch, Tensor, Tensor, Tensor]]:
    """Every batch with its logits, densities and expected densities: means over ``n_samples`` draws of the masks."""
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    with kept(model.modules(), "training"):
        model.eval()
        for batch in batches:
            batch = batch.to(device)
            outputs = [call_model(model, batch, generator) for _ in range(n_samples)]
            logits = torch.stack([o.values for o in outputs]).mean(0)
            n_documents = batch.mask[0].numel() // batch.mask.shape[-1]
            densities = []
            for name in ("density", "expected_density"):
                # samples layers documents heads
                drawn = torch.stack([torch.stack([getattr(a, name) for a in o.attention]) for o in outputs])
                densities.append(drawn.mean(0).transpose(0, 1).unflatten(0, (-1, n_documents)).mean(1))
            yield batch, logits, densities[0], densities[1]
