import numpy as np
import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.batches import Encoding, make_batch, shrink_image, training_examples
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.source import Examples
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


def test_its_number_alone_decides_a_batch():
    forward = [training_examples(50, 8, 1, number).tolist() for number in range(20)]
    np.random.seed(5)
    torch.manual_seed(5)
    assert [training_examples(50, 8, 1, number).tolist() for number in reversed(range(20))] == forward[::-1]
    assert training_examples(50, 8, 2, 0).tolist() != forward[0]
    halves = [training_examples(50, 4, 1, number).tolist() for number in range(40)]
    assert [a + b for a, b in zip(halves[::2], halves[1::2], strict=True)] == forward  # a batch in two parts


@pytest.mark.parametrize("length", [4, 12, 64])
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


def test_black_is_a_pixel_unless_the_pipelines_quirks_are_asked_for(toys):
    split, examples = toys["image"], np.arange(3)
    batch = make_batch(split, examples, Encoding(0, 64, is_image=True))
    assert batch.tokens.tolist() == [split.documents(i)[0].tolist() for i in range(3)]
    assert batch.mask.all() and (batch.tokens == 0).any()
    quirky = make_batch(split, examples, Encoding(0, 64, True, is_padded_to_length=True, is_zero_padding=True))
    assert torch.equal(quirky.tokens, batch.tokens) and torch.equal(quirky.mask, batch.tokens != 0)


def test_quirky_sequences_are_as_long_as_the_setting(toys):
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


def test_empty_documents_are_all_padding(tmp_path):
    def make(task, n, number):
        return Examples.of([(b"",), (b"\3\4",)], [0, 1])

    split = prepare(toy_source(make=make), tmp_path).splits["dev"]
    both = make_batch(split, np.arange(2), Encoding(1, 8))
    assert both.tokens.tolist() == [[0, 0], [4, 5]] and both.mask.tolist() == [[False, False], [True, True]]
    alone = make_batch(split, np.array([0]), Encoding(1, 8))
    assert alone.tokens.tolist() == [[0]] and alone.mask.tolist() == [[False]]


@pytest.mark.bad_input
@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_no_examples_are_refused(sizes):
    with pytest.raises(SbmtError):
        training_examples(*sizes, 0, 0)
