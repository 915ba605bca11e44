"""Tests the statistics themselves: their p-values, and the false alarms of all tests together."""

import numpy as np

from tests.statistics import FALSE_ALARM, Judge, pair_p_values, pattern_p_value


def test_all_statistical_tests_together_give_few_false_alarms(request):
    marks = [item.get_closest_marker("statistical") for item in request.session.items]
    total = sum(mark.kwargs["share"] * FALSE_ALARM for mark in marks if mark is not None)
    assert total <= FALSE_ALARM == 1e-6


def test_dependence_is_detected_even_if_every_cell_has_its_probability():
    x = np.random.default_rng(0).random((16_000, 4)) < 0.5
    x[:, 3] = x[:, 0] ^ x[:, 1]  # pairwise independent, jointly not
    probability = np.full(4, 0.5)
    judge = Judge(share=1e-3)
    assert not judge.rejects(pair_p_values(x, probability))
    assert judge.rejects(pattern_p_value(x, probability))
    x[:, 3] = x[:, 0]
    assert judge.rejects(pair_p_values(x, probability))
