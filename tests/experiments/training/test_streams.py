import numpy as np
import pytest
import torch

from sbmt.experiments.data.batches import Encoding, make_batch
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training.data import BatchStream, ExampleFeed, numbered

ENCODING = Encoding(1, 20)


@pytest.fixture
def split(toy_cache):
    return open_prepared(toy_cache / "toy-listops").splits["train"]


@pytest.fixture
def feed(split):
    return ExampleFeed(split, ENCODING)


def take(stream, n):
    return [batch for batch, _ in zip(stream, range(n), strict=False)]


def is_same(a, b):
    return a.number == b.number and all(torch.equal(getattr(a, x), getattr(b, x)) for x in ("tokens", "mask", "labels"))


@pytest.mark.parametrize("first", [0, 1, 7])
def test_training_begins_anywhere(feed, first):
    whole = take(BatchStream(feed, feed.endless(6, 3)), 20)
    later = take(BatchStream(feed, feed.endless(6, 3), first=first), 20 - first)
    assert all(is_same(a, b) for a, b in zip(whole[first:], later, strict=True))
    assert [batch.number for batch in whole] == list(range(20))
    again = take(BatchStream(feed, feed.endless(6, 3)), 20)
    assert all(is_same(a, b) for a, b in zip(whole, again, strict=True))


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize(("n", "batch_size"), [(48, 6), (47, 6), (1, 6), (13, 4)])
def test_processes_divide_every_batch(feed, split, n, batch_size, n_ranks):
    """Together they hold each example once, in order, and each says how many stand before its own."""
    batches = {number: [] for number in range(-(-n // batch_size))}
    for rank in range(n_ranks):
        for batch in BatchStream(feed, feed.once(batch_size, n), rank=rank, n_ranks=n_ranks):
            batches[batch.number].append(batch)
    for number, parts in batches.items():
        examples = np.arange(number * batch_size, min(n, (number + 1) * batch_size))
        whole = make_batch(split, examples, ENCODING)
        assert sum(len(part.labels) for part in parts) == len(examples)
        for part in parts:
            mine = slice(part.first_example, part.first_example + len(part.labels))
            width = part.tokens.shape[1]
            assert torch.equal(part.tokens, whole.tokens[mine, :width]) and not whole.mask[mine, width:].any()
            assert torch.equal(part.labels, whole.labels[mine])
        ends = [part.first_example + len(part.labels) for part in parts]
        assert [part.first_example for part in parts] == [0, *ends[:-1]]


@pytest.mark.parametrize(("n", "batch_size"), [(12, 4), (13, 4), (3, 4)])
def test_an_evaluation_counts_each_example_once(n, batch_size):
    examples_of, batches = numbered(n, batch_size), []
    while (examples := examples_of(len(batches))) is not None:
        batches.append(examples.tolist())
    assert [example for batch in batches for example in batch] == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_a_batch_keeps_its_number_on_another_device(feed):
    batch = next(iter(BatchStream(feed, feed.once(4, 8), rank=1, n_ranks=2)))
    moved = batch.to(torch.device("meta"))
    assert (moved.number, moved.first_example) == (0, 2)
    assert {moved.tokens.device.type, moved.mask.device.type, moved.labels.device.type} == {"meta"}
