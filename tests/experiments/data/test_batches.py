import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.experiments.data.batches import POOL_BATCHES, Encoding, batches_by_length, make_batch, training_examples
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training.data import Feed


@pytest.mark.parametrize(("n", "batch_size"), [(48, 7), (5, 12)])
def test_every_epoch_visits_each_example_once(n, batch_size):
    n_batches = -(-3 * n // batch_size)
    seen = np.concatenate([training_examples(n, batch_size, 7, number) for number in range(n_batches)])
    assert len(seen) == n_batches * batch_size
    epochs = [seen[start : start + n].tolist() for start in range(0, 3 * n, n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
    if n > 5:
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        assert training_examples(n, batch_size, 8, 0).tolist() != seen[:batch_size].tolist()


def naive_row(document, encoding, width):
    """Returns the tokens of a document, and a mask of the real ones."""
    pixels = document.astype(float)
    if encoding.is_image:
        side, small = round(len(pixels) ** 0.5), round(encoding.length**0.5)
        step = side // small
        pixels = np.floor(pixels.reshape(small, step, small, step).mean((1, 3)) + 0.5).ravel()
    ids = [int(x) + encoding.first_id for x in pixels[: encoding.length]]
    padding = [encoding.padding_id] * (width - len(ids))
    is_real = [token != 0 for token in ids + padding] if encoding.is_zero_padding else None
    return ids + padding, is_real or [True] * len(ids) + [False] * len(padding)


@pytest.mark.parametrize(
    ("task", "encoding"),
    [
        ("listops", Encoding(1, 12)),
        ("text", Encoding(1, 64, padding_id=5)),
        ("text", Encoding(1, 32, is_padded_to_length=True, is_zero_padding=True)),
        ("retrieval", Encoding(1, 30)),
        ("image", Encoding(0, 64, is_image=True, is_padded_to_length=True, is_zero_padding=True)),
        ("image", Encoding(0, 16, is_image=True)),
    ],
)
def test_batches_are_made_document_by_document(toy_cache, task, encoding):
    split, examples = open_prepared(toy_cache / f"toy-{task}").splits["train"], [3, 0, 40]
    batch = make_batch(split, np.array(examples), encoding)
    documents = [document for i in examples for document in split.documents(i)]
    longest = max(min(len(document), encoding.length) for document in documents)
    width = encoding.length if encoding.is_padded_to_length else longest
    rows = [naive_row(document, encoding, width) for document in documents]
    assert batch.tokens.shape == batch.mask.shape == ((3, 2, width) if task == "retrieval" else (3, width))
    assert batch.tokens.flatten(0, -2).tolist() == [tokens for tokens, _ in rows]
    assert batch.mask.flatten(0, -2).tolist() == [is_real for _, is_real in rows]
    assert batch.tokens.dtype == torch.int64 and batch.labels.tolist() == split.labels[examples].tolist()


def naive_pool(lengths, batch_size, seed, pool):
    """Returns the set of batches of a pool, each epoch sorted by itself, alternately up and down."""
    places = range(pool * POOL_BATCHES * batch_size, (pool + 1) * POOL_BATCHES * batch_size)
    stream = [(place // len(lengths), *training_examples(len(lengths), 1, seed, place).tolist()) for place in places]
    order = []
    for epoch in sorted({epoch for epoch, _ in stream}):
        part = [example for e, example in stream if e == epoch]
        order += sorted(part, key=lambda i: lengths[i] if epoch % 2 == 0 else -lengths[i])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


@pytest.mark.parametrize(("n", "batch_size"), [(1000, 3), (48, 7), (1, 3)])
def test_batches_are_those_of_the_pools(n, batch_size):
    lengths = np.random.default_rng(n).integers(1, 500, n)
    examples_of = batches_by_length(lengths, batch_size, 3)
    for pool in range(3):
        batches = [examples_of(pool * POOL_BATCHES + i) for i in range(POOL_BATCHES)]
        assert all(batch.dtype == np.int64 and batch.shape == (batch_size,) for batch in batches)
        naive = naive_pool(lengths, batch_size, 3, pool)
        assert sorted(batch.tolist() for batch in batches) == sorted(naive)
        if n > batch_size:
            assert [batch.tolist() for batch in batches] != naive  # long batches do not always come last


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 12))
def test_an_evaluation_holds_each_once_from_short_to_long(lengths, batch_size):
    examples_of = Feed(len(lengths), make_batch, np.array(lengths, np.int64)).once(batch_size, None)
    n_batches = -(-len(lengths) // batch_size)
    batches = [examples_of(number) for number in range(n_batches)]
    assert all(len(batch) == batch_size for batch in batches[:-1])
    order = [example for batch in batches for example in batch.tolist()]
    assert order == sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    assert all(examples_of(n_batches + i) is None for i in range(3))
