"""Tests the data of runs: streams that start anywhere, blocks with masked tokens, packed rows."""

import numpy as np
import pytest
import torch

from sbmt.experiments.data.batches import Encoding, make_batch
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training.data import BatchStream, example_feed


def is_same(a, b):
    names = ["tokens", "mask", "labels", *([] if a.selected is None else ["selected"])]
    return a.number == b.number and all(torch.equal(getattr(a, x), getattr(b, x)) for x in names)


@pytest.mark.parametrize(("n", "batch_size", "n_ranks"), [(48, 6, 2), (47, 6, 4), (1, 6, 2), (13, 4, 3)])
def test_processes_divide_every_batch(toy_cache, n, batch_size, n_ranks):
    """Together, the parts contain each example once, in order, with the number of examples before each part."""
    split, encoding = open_prepared(toy_cache / "toy-listops").splits["train"], Encoding(1, 20)
    feed = example_feed(split, encoding)
    batches = {number: [] for number in range(-(-n // batch_size))}
    for rank in range(n_ranks):
        for batch in BatchStream(feed, feed.once(batch_size, n), rank=rank, n_ranks=n_ranks):
            batches[batch.number].append(batch)
    for number, parts in batches.items():
        examples = np.arange(number * batch_size, min(n, (number + 1) * batch_size))
        whole = make_batch(split, examples, encoding)
        assert sum(len(part.labels) for part in parts) == len(examples)
        for part in parts:
            mine = slice(part.first_example, part.first_example + len(part.labels))
            width = part.tokens.shape[1]
            assert torch.equal(part.tokens, whole.tokens[mine, :width]) and not whole.mask[mine, width:].any()
            assert torch.equal(part.labels, whole.labels[mine])
        ends = [part.first_example + len(part.labels) for part in parts]
        assert [part.first_example for part in parts] == [0, *ends[:-1]]


def batches_of(config, split, batch_size=4):
    feed = config.open_data().feeds[split]
    return list(BatchStream(feed, feed.once(batch_size, len(feed))))


@pytest.mark.usefixtures("caches")
def test_hidden_tokens_of_dev_and_test_are_the_same_for_every_run(tiny_mlm):
    """Tests are the same for all seeds and attention mechanisms; training batches differ by seed and epoch."""
    first, other = tiny_mlm(), tiny_mlm(seed=1, attention="full", d_model=16, batch_size=8)
    for split in ("dev", "test"):
        assert all(is_same(a, b) for a, b in zip(batches_of(first, split), batches_of(other, split), strict=True))
    assert not any(is_same(a, b) for a, b in zip(batches_of(first, "train"), batches_of(other, "train"), strict=True))
    feed = first.open_data().feeds["train"]
    early, late = (feed.batch(np.arange(4), slice(0, 4), number) for number in (0, 7))
    assert is_same(early, feed.batch(np.arange(4), slice(0, 4), 0)) and not torch.equal(early.selected, late.selected)
