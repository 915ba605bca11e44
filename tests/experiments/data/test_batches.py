import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import (
    POOL_BATCHES,
    Encoding,
    batches_by_length,
    make_batch,
    once_by_length,
    shrink_image,
    training_examples,
)
from sbmt.experiments.data.prepared import Split, prepare
from tests.experiments.data.toy import KINDS, toy_source


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return {task: prepare(toy_source(task), cache).splits["train"] for task in KINDS}


@pytest.mark.parametrize(("n", "batch_size"), [(48, 16), (48, 7), (5, 12), (1, 3)])
def test_every_epoch_visits_each_example_once(n, batch_size):
    n_batches = -(-3 * n // batch_size)
    seen = np.concatenate([training_examples(n, batch_size, 7, number) for number in range(n_batches)])
    assert len(seen) == n_batches * batch_size
    epochs = [seen[start : start + n].tolist() for start in range(0, 3 * n, n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
    if n > 5:
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        assert training_examples(n, batch_size, 8, 0).tolist() != seen[:batch_size].tolist()


@pytest.mark.parametrize("length", [1, 12, 64])
def test_documents_are_shifted_cut_and_padded(toys, length):
    examples = [3, 0, 40]
    batch = make_batch(toys["listops"], np.array(examples), Encoding(1, length))
    documents = [toys["listops"].documents(i)[0][:length].astype(int) + 1 for i in examples]
    longest = max(map(len, documents))
    assert batch.tokens.shape == batch.mask.shape == (3, longest) and longest <= length
    assert batch.tokens.dtype == torch.int64 and batch.mask.dtype == torch.bool
    for row, mask, document in zip(batch.tokens, batch.mask, documents, strict=True):
        assert row.tolist() == document.tolist() + [0] * (longest - len(document))
        assert mask.tolist() == [True] * len(document) + [False] * (longest - len(document))
    assert batch.labels.tolist() == toys["listops"].labels[examples].tolist()


def test_pairs_keep_their_order(toys):
    split = toys["retrieval"]
    batch = make_batch(split, np.array([1, 5]), Encoding(1, 30))
    assert batch.tokens.shape[:2] == (2, 2)
    for example, i in enumerate((1, 5)):
        for side, document in enumerate(split.documents(i)):
            real = batch.tokens[example, side][batch.mask[example, side]]
            assert real.tolist() == (document.astype(int) + 1).tolist()


def test_black_is_a_pixel_and_sequences_are_short_unless_the_pipelines_quirks_are_asked_for(toys):
    split, examples = toys["image"], np.arange(3)
    batch = make_batch(split, examples, Encoding(0, 64, is_image=True))
    assert batch.tokens.tolist() == [split.documents(i)[0].tolist() for i in range(3)]
    assert batch.mask.all() and (batch.tokens == 0).any()
    quirky = make_batch(split, examples, Encoding(0, 64, True, is_padded_to_length=True, is_zero_padding=True))
    assert torch.equal(quirky.tokens, batch.tokens) and torch.equal(quirky.mask, batch.tokens != 0)
    plain = make_batch(toys["text"], np.arange(4), Encoding(1, 32))
    quirky = make_batch(toys["text"], np.arange(4), Encoding(1, 32, is_padded_to_length=True, is_zero_padding=True))
    n = plain.tokens.shape[1]
    assert quirky.tokens.shape == (4, 32) and n < 32
    assert torch.equal(quirky.tokens[:, :n], plain.tokens) and torch.equal(quirky.mask[:, :n], plain.mask)
    assert not quirky.tokens[:, n:].any() and not quirky.mask[:, n:].any()


def test_images_shrink_to_means_of_blocks(toys):
    split = toys["image"]
    batch = make_batch(split, np.array([2]), Encoding(0, 16, is_image=True))
    image = split.documents(2)[0].reshape(8, 8).astype(float)
    for row in range(4):
        for column in range(4):
            mean = image[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean()
            assert batch.tokens[0, 4 * row + column] == int(mean + 0.5)
    assert (shrink_image(np.full(64, 255, np.uint8), 4) == 255).all()


@pytest.mark.bad_input
@pytest.mark.parametrize(("n_pixels", "length"), [(64, 9), (64, 60), (64, 256), (60, 4), (64, 0)])
def test_images_that_do_not_divide_are_refused(n_pixels, length):
    with pytest.raises(SbmtError, match="divides a square"):
        shrink_image(np.zeros(n_pixels, np.uint8), length)


def test_empty_documents_are_all_padding():
    offsets, lengths = np.zeros((2, 1), np.int64), np.array([[0], [2]])
    split = Split(np.arange(2), np.zeros(2, np.int64), np.array([3, 4], np.uint8), offsets, lengths, {})
    both = make_batch(split, np.arange(2), Encoding(1, 8))
    assert both.tokens.tolist() == [[0, 0], [4, 5]] and both.mask.tolist() == [[False, False], [True, True]]
    alone = make_batch(split, np.array([0]), Encoding(1, 8))
    assert alone.tokens.tolist() == [[0]] and alone.mask.tolist() == [[False]]


SHAPES = [(640, 5), (1000, 3), (48, 7), (5, 12), (1, 3), (64, 1)]


def lengths_of(n, seed=0):
    return np.random.default_rng([seed, n]).integers(1, 500, n)


def naive_pool(lengths, batch_size, seed, pool):
    """The set of batches of a pool: every epoch's part sorted by itself, up and down in turns."""
    places = range(pool * POOL_BATCHES * batch_size, (pool + 1) * POOL_BATCHES * batch_size)
    stream = [(place // len(lengths), *training_examples(len(lengths), 1, seed, place).tolist()) for place in places]
    order = []
    for epoch in sorted({epoch for epoch, _ in stream}):
        part = [example for e, example in stream if e == epoch]
        order += sorted(part, key=lambda i: lengths[i] if epoch % 2 == 0 else -lengths[i])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


@pytest.mark.parametrize(("n", "batch_size"), SHAPES)
def test_batches_are_those_of_the_pools(n, batch_size):
    lengths = lengths_of(n)
    examples_of = batches_by_length(lengths, batch_size, 3)
    for pool in range(3):
        batches = [examples_of(pool * POOL_BATCHES + i) for i in range(POOL_BATCHES)]
        assert all(batch.dtype == np.int64 and batch.shape == (batch_size,) for batch in batches)
        naive = naive_pool(lengths, batch_size, 3, pool)
        assert sorted(batch.tolist() for batch in batches) == sorted(naive)
        if n > batch_size:
            assert [batch.tolist() for batch in batches] != naive  # long ones do not always come last


def test_its_number_alone_decides_a_batch():
    lengths = lengths_of(1000)
    for make in (lambda seed: partial(training_examples, 1000, 4, seed), partial(batches_by_length, lengths, 4)):
        forward = [make(1)(number).tolist() for number in range(200)]  # anew for every batch
        examples_of = make(1)
        np.random.seed(5)
        assert [examples_of(number).tolist() for number in reversed(range(200))] == forward[::-1]
        copy = pickle.loads(pickle.dumps(examples_of))  # in another process
        assert [copy(number).tolist() for number in (0, 77)] == [forward[0], forward[77]]
        assert make(2)(0).tolist() != forward[0]
        examples_of(3)[:] = 0  # changes no other
        assert examples_of(3).tolist() == forward[3]


def test_little_is_padding():
    """Of batches by length at most a twentieth, where a third of random ones is: counted, not timed."""
    n, batch_size = 64 * 32 * 4, 32
    lengths = lengths_of(n)

    def padding(examples_of):
        batches = [lengths[examples_of(number)] for number in range(n // batch_size)]
        return 1 - sum(batch.sum() for batch in batches) / sum(batch.max() * batch_size for batch in batches)

    assert padding(lambda number: training_examples(n, batch_size, 0, number)) > 1 / 3
    assert padding(batches_by_length(lengths, batch_size, 0)) < 1 / 20


def test_where_epochs_meet_lengths_stay_alike():
    lengths = lengths_of(1008)  # 64 batches of 32 are two epochs of 31.5 batches each, and one batch of a third
    examples_of = batches_by_length(lengths, 32, 0)
    spread = sorted(np.ptp(lengths[examples_of(number)]) for number in range(POOL_BATCHES))
    assert spread[-2] < 60 and spread[-1] > 300


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 12))
def test_an_evaluation_holds_each_once_from_short_to_long(lengths, batch_size):
    examples_of = once_by_length(np.array(lengths, np.int64), batch_size)
    n_batches = -(-len(lengths) // batch_size)
    batches = [examples_of(number) for number in range(n_batches)]
    assert all(len(batch) == batch_size for batch in batches[:-1])
    order = [example for batch in batches for example in batch.tolist()]
    assert order == sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    assert all(examples_of(n_batches + i) is None for i in range(3))
    for number, batch in enumerate(batches):
        pickle.loads(pickle.dumps(examples_of))(number)[:] = -1  # in another process
        assert examples_of(number).tolist() == batch.tolist()


@pytest.mark.bad_input
def test_wrong_sizes_of_batches_by_length_are_refused():
    lengths = np.array([1, 2])
    for make in (lambda *a: batches_by_length(*a, 0), once_by_length):
        with pytest.raises(SbmtError, match="batch_size ≥ 1"):
            make(lengths, 0)
        with pytest.raises(SbmtError, match=r"one length per example, got the shape \(2, 1\)"):
            make(lengths[:, None], 2)
    for make in (lambda: batches_by_length(lengths[:0], 2, 0), lambda: training_examples(0, 4, 0, 0)):
        with pytest.raises(SbmtError, match="n_examples ≥ 1"):
            make()
