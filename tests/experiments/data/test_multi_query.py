"""Multi-query associative recall."""

import pytest
import torch

import sbmt
from sbmt.experiments.data.multi_query import NO_ANSWER, sample_multi_query


def draw(n=200, length=40, n_pairs=5, vocab_size=30, seed=0):
    return sample_multi_query(n, length, n_pairs, vocab_size, generator=torch.Generator().manual_seed(seed))


def test_every_key_is_asked_for_once_and_its_answer_followed_it():
    tokens, answers = draw()
    for sequence, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        stored = dict(zip(sequence[0:10:2], sequence[1:10:2], strict=True))
        places = [i for i, answer in enumerate(wanted) if answer != NO_ANSWER]
        assert {sequence[i]: wanted[i] for i in places} == stored and len(stored) == len(places) == 5
        assert min(places) >= 10 and all(i % 2 == 0 for i in places)
        assert max(stored) < 15 <= min(stored.values()) and len(set(stored.values())) == 5


def test_queries_come_soon_by_the_power_law_and_symbols_are_uniform():
    """The first place of three holds one of two queries with a known probability; false alarms 1e-7."""
    share = torch.tensor([1.0, 2.0, 3.0]) ** (0.01 - 1)
    p = share / share.sum()
    first = p[0] + sum(p[i] * p[0] / (1 - p[i]) for i in (1, 2))  # in the first or the second of two picks
    tokens, answers = draw(4000, length=10, n_pairs=2)
    found = (answers[:, 4] != NO_ANSWER).double().mean()
    assert abs(found - first) < 5.4 * (first * (1 - first) / 4000) ** 0.5
    counts = tokens[:, 5::2].flatten().bincount(minlength=30).double()
    expected = counts.sum() / 30
    assert ((counts - expected).abs() < 5.8 * expected**0.5).all()


def test_a_batch_holds_what_single_sequences_would():
    generator = torch.Generator().manual_seed(0)
    single = [sample_multi_query(1, 40, 5, 30, generator=generator) for _ in range(3)]
    for together, apart in zip(draw(3), zip(*single, strict=True), strict=True):
        assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize(("sizes", "words"), [((19, 5, 30), "length"), ((20, 5, 11), "vocab_size"), ((0, 1, 9), "≥ 1")])
def test_impossible_sizes_are_refused(sizes, words):
    with pytest.raises(sbmt.SbmtError, match=words):
        sample_multi_query(2, *sizes)
