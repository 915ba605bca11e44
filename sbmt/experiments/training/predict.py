"""What a fine-tuned model answers to sentences without labels, as GLUE's server takes it."""

import numpy as np
import torch
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.data.glue.files import GlueRows
from sbmt.experiments.data.glue.sentence_pairs import encode_split
from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import Examples
from sbmt.experiments.training.language import GlueConfig
from sbmt.experiments.training.streams import BatchStream
from sbmt.experiments.training.task_data import ExampleFeed
from sbmt.experiments.training.task_runs import TaskRun

_BATCH = 32


@torch.no_grad()
def predict_labels(run: TaskRun, rows: GlueRows, *, n_samples: int = 1, seed: int = 0) -> NDArray[np.int64]:
    """The label with the largest logit for every row, in their order.

    Args:
        run: A fine-tuned model; it is put in eval mode.
        rows: From :func:`~sbmt.experiments.data.glue.files.read_glue`.
        n_samples: Masks drawn per row; logits are averaged over them.
        seed: Seed of the masks.

    Raises:
        SbmtError: If the run is not one of GLUE's, or its task has another number of sentences.
    """
    check_sizes(n_samples=n_samples)
    if not isinstance(run.config, GlueConfig) or run.tokenizer is None:
        raise SbmtError("a run of sbmt train glue", f"one on {run.config.task}", "name another folder")
    n_texts = len(GLUE[run.config.task].texts)
    if any(len(texts) != n_texts for texts in rows.texts):
        raise SbmtError(f"{n_texts} texts per row for {run.config.task}", "another number", "give that task's table")
    documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
    examples = Examples.of(documents, [0] * len(documents))
    offsets = (examples.lengths.cumsum() - examples.lengths.ravel()).reshape(examples.lengths.shape)
    split = Split(np.arange(len(documents)), examples.labels, examples.symbols, offsets, examples.lengths, {})
    encoded, _ = encode_split(split, run.tokenizer, run.config.length)
    feed = ExampleFeed(encoded, Encoding(0, run.config.length, padding_id=run.tokenizer.padding_id), is_by_length=True)
    generator = torch.Generator().manual_seed(seed)
    model = run.model.eval()
    predicted = np.empty(len(documents), np.int64)
    examples_of = feed.once(_BATCH, len(feed))
    for batch in BatchStream(feed, examples_of):
        logits = sum(model(batch.tokens, batch.mask, generator=generator).values for _ in range(n_samples))
        predicted[examples_of(batch.number)] = logits.argmax(-1).numpy()
    return predicted


def submission(task: str, rows: GlueRows, predicted: NDArray[np.int64]) -> str:
    """The file that GLUE's server takes: a line per row of the test table, with its number and the label's name.

    Example:
        >>> rows = GlueRows((("good",), ("bad",)), None, ("0", "1"), 0, 0)
        >>> print(submission("sst2", rows, np.array([1, 0])), end="")
        index	prediction
        0	1
        1	0
    """
    lines = [f"{i}\t{GLUE[task].written[label]}" for i, label in zip(rows.index, predicted.tolist(), strict=True)]
    return "\n".join(["index\tprediction", *lines]) + "\n"
