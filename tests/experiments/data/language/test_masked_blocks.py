"""Blocks of a stream, and the law by which their tokens are selected and hidden."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sbmt import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.language.masked_blocks import Blocks, blocks_of, make_masked_batch, select_and_mask
from sbmt.experiments.data.language.tokenizer import train_tokenizer
from sbmt.experiments.data.prepared import Split
from tests.statistics import binomial_p_values, pair_p_values, uniform_p_value

SHARE = 0.001  # of the suite's false alarms, for each statistical test here
TOKENIZER = train_tokenizer(["the cat sat on the mat"], 270)
PLAIN = np.arange(5, TOKENIZER.vocab_size)
KEY = (3, 14)


def stream(n, seed=0):
    return np.random.default_rng(seed).integers(5, TOKENIZER.vocab_size, n).astype(np.uint16)


def blocks(n, length):
    return Blocks(stream(n), length, TOKENIZER.start_id, TOKENIZER.end_id, TOKENIZER.padding_id)


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


@given(st.integers(0, 60), st.integers(3, 20))
def test_blocks_hold_the_stream_once_between_start_and_end(n, length):
    made = blocks(n, length)
    tokens, is_real = made.rows(np.arange(len(made)))
    assert tokens.shape == is_real.shape == (len(made), length) and tokens.dtype == np.int64
    inside = [row[real][1:-1].tolist() for row, real in zip(tokens, is_real, strict=True)]
    assert [i for row in inside for i in row] == made.symbols.tolist()
    assert all(len(row) == length - 2 for row in inside[:-1]) and all(inside)
    for row, real in zip(tokens, is_real, strict=True):
        n_real = real.sum()
        assert real[:n_real].all() and row[0] == 0 and row[n_real - 1] == 2 and (row[n_real:] == 1).all()
    order = np.arange(len(made))[::-2]
    again = made.rows(order)
    assert (again[0] == tokens[order]).all() and (again[1] == is_real[order]).all()


@pytest.mark.bad_input
def test_wrong_blocks_are_refused():
    for number in (-1, 8):
        with pytest.raises(SbmtError, match=r"blocks in \[0, 8\)"):
            blocks(50, 9).rows(np.array([0, number]))
    with pytest.raises(SbmtError, match="length ≥ 3"):
        blocks(5, 2)


def split_of(indices, lengths=(4, 0, 7, 5), kind="uint16"):
    sizes = np.array(lengths)
    at = np.array(indices, np.int64)
    symbols = stream(sizes.sum()).astype(kind)
    return Split(at, np.zeros(len(at), np.int64), symbols, (sizes.cumsum() - sizes)[:, None], sizes[:, None], {})


def test_a_split_is_one_stream():
    for examples in ([0], [1, 2], [0, 1, 2, 3], [0, 2, 3]):  # what lies between is empty
        split = split_of(examples)
        made = blocks_of(split, 6, TOKENIZER)
        assert made.symbols.tolist() == [i for n in range(len(split)) for i in split.documents(n)[0].tolist()]
        assert (made.length, made.start_id, made.end_id, made.padding_id) == (6, 0, 2, 1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("split", "words"),
    [
        (split_of([0, 3]), "one stream"),
        (split_of([3, 2]), "one stream"),
        (split_of([]), "one stream"),
        (split_of([0, 1], kind="uint32"), "uint16 ids"),
    ],
)
def test_splits_of_another_kind_are_refused(split, words):
    with pytest.raises(SbmtError, match=words):
        blocks_of(split, 6, TOKENIZER)


@pytest.mark.statistical(share=SHARE)
def test_every_token_is_selected_alike_and_apart_from_the_others(judge):
    n, width = 40_000, 12
    tokens = np.tile(stream(width).astype(np.int64), (n, 1))
    tokens[:, 0], tokens[:, 5] = TOKENIZER.start_id, TOKENIZER.mask_id
    is_real = np.tile(np.arange(width) < 10, (n, 1))
    _, selected = select_and_mask(tokens, is_real, TOKENIZER, generator(0))
    is_asked = is_real[0] & (tokens[0] >= 5)
    assert is_asked.sum() == 8 and not selected[:, ~is_asked].any()
    mine = selected[:, is_asked]
    per_row = np.bincount(mine.sum(1), minlength=9)
    judge(
        binomial_p_values(mine.sum(0), n, 0.15),
        pair_p_values(mine, np.full(8, 0.15)),
        binomial_p_values(per_row, n, stats.binom.pmf(np.arange(9), 8, 0.15)),
        binomial_p_values((mine[::2] & mine[1::2]).sum(0), n // 2, 0.15**2),
    )


@pytest.mark.statistical(share=SHARE)
def test_selected_tokens_are_hidden_replaced_or_kept(judge):
    shape = 2000, 500
    tokens = generator(1).integers(5, TOKENIZER.vocab_size, shape)
    inputs, selected = select_and_mask(tokens, np.ones(shape, np.bool_), TOKENIZER, generator(2))
    assert (inputs[~selected] == tokens[~selected]).all()
    given_, true = inputs[selected], tokens[selected]
    n, n_plain = len(true), len(PLAIN)
    is_hidden, is_other = given_ == TOKENIZER.mask_id, (given_ != TOKENIZER.mask_id) & (given_ != true)
    p_other = 0.1 * (1 - 1 / n_plain)
    counts = [is_hidden.sum(), is_other.sum(), (given_ == true).sum()]
    shift = (given_[is_other] - true[is_other]) % n_plain  # 1 … n_plain − 1, all alike
    others = np.bincount(given_[is_other], minlength=TOKENIZER.vocab_size)
    assert not others[list(TOKENIZER.special_ids)].any()
    n_groups = 20  # of shifts, so that each is met often enough for a chi-square
    groups = np.bincount((shift - 1) * n_groups // (n_plain - 1), minlength=n_groups)
    sizes = np.bincount(np.arange(n_plain - 1) * n_groups // (n_plain - 1))
    judge(
        binomial_p_values(counts, n, np.array([0.8, p_other, 1 - 0.8 - p_other])),
        uniform_p_value(groups, is_other.sum() * sizes / sizes.sum()),
        binomial_p_values(others[PLAIN], n, p_other / n_plain),
    )


@pytest.mark.statistical(share=SHARE)
def test_what_becomes_of_a_token_depends_on_no_other(judge):
    n, width = 60_000, 6
    tokens = np.full((n, width), 7)
    inputs, selected = select_and_mask(tokens, np.ones((n, width), np.bool_), TOKENIZER, generator(3))
    hidden, kept = selected & (inputs == TOKENIZER.mask_id), selected & (inputs == 7)
    p_kept = 0.15 * (0.1 + 0.1 / len(PLAIN))
    judge(
        pair_p_values(hidden, np.full(width, 0.12)),
        [binomial_p_values((hidden[:, i] & kept[:, j]).sum(), n, 0.12 * p_kept) for i, j in np.ndindex(6, 6) if i != j],
        binomial_p_values((hidden[::2] & hidden[1::2]).sum(0), n // 2, 0.12**2),
    )


@pytest.mark.parametrize("bounds", [(0, 8, 16), (0, 1, 2, 15, 16)])
def test_processes_that_share_a_batch_draw_what_one_would(bounds):
    made, examples = blocks(3000, 12), np.arange(16) * 7
    tokens, is_real = made.rows(examples)
    whole = make_masked_batch(made, examples, slice(0, 16), TOKENIZER, KEY)
    assert whole.mask.numpy().tolist() == is_real.tolist() and whole.weight == 1.0
    assert whole.selected.any() and whole.labels.tolist() == tokens[whole.selected.numpy()].tolist()
    assert (whole.tokens.numpy() == tokens)[~whole.selected.numpy()].all()
    assert whole.tokens.dtype == whole.labels.dtype == torch.int64
    parts = [make_masked_batch(made, examples, slice(a, b), TOKENIZER, KEY) for a, b in pairwise(bounds)]
    for name in ("tokens", "mask", "selected", "labels"):
        assert torch.cat([getattr(part, name) for part in parts]).equal(getattr(whole, name))
    for part, (a, b) in zip(parts, pairwise(bounds), strict=True):
        assert part.weight == pytest.approx(len(part.labels) * 16 / ((b - a) * len(whole.labels)))


def test_nothing_may_be_selected():
    made = blocks(1, 3)
    is_empty = []
    for number in range(60):
        batch = make_masked_batch(made, np.array([0]), slice(0, 1), TOKENIZER, (0, number))
        is_empty.append(not batch.selected.any())
        assert (batch.weight == 0.0) == is_empty[-1] and len(batch.labels) == (not is_empty[-1])
    assert set(is_empty) == {True, False}
    nobody: Batch = make_masked_batch(made, np.array([0]), slice(1, 1), TOKENIZER, KEY)
    assert nobody.weight == 0.0 and nobody.tokens.shape == (0, 3) and len(nobody.labels) == 0


def test_what_is_drawn_depends_on_the_key_alone():
    made, examples = blocks(3000, 12), np.arange(16)
    first = make_masked_batch(made, examples, slice(0, 16), TOKENIZER, KEY)
    for key in ((3, 15), (4, 14), (14, 3)):
        other = make_masked_batch(made, examples, slice(0, 16), TOKENIZER, key)
        assert not first.selected.equal(other.selected)
    elsewhere = make_masked_batch(made, examples + 100, slice(0, 16), TOKENIZER, KEY)
    assert first.selected.equal(elsewhere.selected)


def test_the_draws_are_those_of_yesterday():
    batch = make_masked_batch(blocks(3000, 12), np.arange(4), slice(0, 4), TOKENIZER, KEY)
    assert batch.selected.nonzero().tolist() == [[0, 1], [1, 3], [1, 7], [1, 8], [2, 6], [3, 2], [3, 4]]
    assert batch.tokens[batch.selected].tolist() == [230, 138, 172, 4, 232, 4, 4]
