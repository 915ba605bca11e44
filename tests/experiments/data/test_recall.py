"""Tests associative recall by reading every sequence and looking up the answers among its items."""

from collections import Counter

import pytest
import torch

from sbmt.experiments.data.recall import NO_ANSWER, sample_multi_query, sample_recall
from tests.layers.inputs import seeded
from tests.statistics import binomial_p_values

SIZES = {
    "as in training": dict(n_pairs=16, n_queries=16, n_distractors=32, n_keys=128, n_values=32),
    "distractors' keys repeat": dict(n_pairs=3, n_queries=5, n_distractors=20, n_keys=10, n_values=4),
    "no distractors": dict(n_pairs=4, n_queries=9, n_distractors=0, n_keys=4, n_values=3),
    "fewer queries than pairs": dict(n_pairs=5, n_queries=2, n_distractors=3, n_keys=9, n_values=2),
}


@pytest.mark.parametrize("permutation", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_answers_are_found_by_looking_through_the_items(name, permutation):
    sizes = SIZES[name]
    n_pairs, n_queries, n_distractors, n_keys, n_values = sizes.values()
    tokens, answers = sample_recall(30, **sizes, permutation=permutation, generator=seeded())
    assert tokens.shape == (30, n_pairs + n_queries + n_distractors, 2) and answers.shape == tokens.shape[:2]
    for sequence, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        items, queries = [], []
        for (key, mark), value in zip(sequence, answer, strict=True):
            assert 0 <= key < n_keys and n_keys <= mark <= n_keys + n_values
            if mark == n_keys + n_values:
                queries.append((key, value))
            else:
                assert value == NO_ANSWER
                items.append((key, mark - n_keys))
        assert len(queries) == n_queries
        stored_as = {(key + 1) % n_keys if permutation else key: key for key in range(n_keys)}
        asked = Counter(stored_as[key] for key, _ in queries)
        assert len(asked) == min(n_pairs, n_queries) and max(asked.values()) - min(asked.values()) <= 1
        for key, value in queries:
            (found,) = (v for k, v in items if k == stored_as[key])  # exactly one
            assert value == found
        if n_queries < n_pairs:
            continue
        others = Counter(key for key, _ in items if key not in asked)
        assert sum(others.values()) == n_distractors
        if n_distractors:
            assert len(others) == min(n_distractors, n_keys - n_pairs)
            assert max(others.values()) - min(others.values()) <= 1


@pytest.mark.statistical(share=0.001)
def test_order_keys_and_values_are_uniform(judge):
    """Tests one token of each sequence, since the tokens of a sequence are dependent."""
    n, n_keys, n_values = 50_000, 7, 3
    tokens, answers = sample_recall(n, 2, 3, 5, n_keys, n_values, permutation=True, generator=seeded())
    is_query = answers[:, 4] != NO_ANSWER
    n_asked = int(is_query.sum())
    items, queries = tokens[~is_query][:, 4], tokens[is_query][:, 4, 0]
    judge(
        binomial_p_values(n_asked, n, 3 / 10),
        binomial_p_values(torch.bincount(queries, minlength=n_keys), n_asked, 1 / n_keys),
        binomial_p_values(torch.bincount(items[:, 0], minlength=n_keys), n - n_asked, 1 / n_keys),
        binomial_p_values(torch.bincount(items[:, 1] - n_keys, minlength=n_values), n - n_asked, 1 / n_values),
        binomial_p_values(torch.bincount(answers[is_query][:, 4], minlength=n_values), n_asked, 1 / n_values),
    )


def test_every_key_is_asked_for_once_and_its_answer_followed_it():
    tokens, answers = sample_multi_query(200, 40, 5, 30, generator=seeded())
    for sequence, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        stored = dict(zip(sequence[0:10:2], sequence[1:10:2], strict=True))
        places = [i for i, answer in enumerate(wanted) if answer != NO_ANSWER]
        assert {sequence[i]: wanted[i] for i in places} == stored and len(stored) == len(places) == 5
        assert min(places) >= 10 and all(i % 2 == 0 for i in places)
        assert max(stored) < 15 <= min(stored.values()) and len(set(stored.values())) == 5


def test_queries_come_soon_by_the_power_law_and_symbols_are_uniform():
    """The first of three positions holds one of two queries with a known probability; false alarms 1e-7."""
    share = torch.tensor([1.0, 2.0, 3.0]) ** (0.01 - 1)
    p = share / share.sum()
    first = p[0] + sum(p[i] * p[0] / (1 - p[i]) for i in (1, 2))  # chosen by the first or the second draw
    tokens, answers = sample_multi_query(4000, 10, 2, 30, generator=seeded())
    found = (answers[:, 4] != NO_ANSWER).double().mean()
    assert abs(found - first) < 5.4 * (first * (1 - first) / 4000) ** 0.5
    counts = tokens[:, 5::2].flatten().bincount(minlength=30).double()
    expected = counts.sum() / 30
    assert ((counts - expected).abs() < 5.8 * expected**0.5).all()
