"""Fixed masks against the inequality that defines them."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.graph.patterns import all_pairs, sliding_window


@pytest.mark.parametrize("window", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("n", [1, 7])
def test_a_window_reaches_half_its_width_to_either_side(n, window):
    mask = sliding_window((2, 3, n, n), window).to_dense()
    expected = [[abs(i - j) <= window / 2 for j in range(n)] for i in range(n)]
    assert torch.equal(mask, torch.tensor(expected).expand(2, 3, n, n))


def test_padding_is_neither_query_nor_key():
    query_mask = torch.tensor([[True, True, False, True], [True] * 4])
    key_mask = torch.tensor([[True, False, True, True], [False] * 4])
    edges = sliding_window((2, 2, 4, 4), 2, query_mask, key_mask)
    open_window = sliding_window((2, 2, 4, 4), 2).to_dense()
    assert torch.equal(edges.to_dense(), open_window & query_mask[:, None, :, None] & key_mask[:, None, None, :])
    assert edges.n_pairs.tolist() == [9, 0]


def test_all_pairs_are_those_of_real_tokens():
    query_mask, key_mask = torch.tensor([[True, False]]), torch.tensor([[True, False, True], [False] * 3])
    edges = all_pairs((2, 3, 2, 3), query_mask, key_mask)
    expected = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]).bool()
    assert torch.equal(edges.to_dense(), expected[:, None].expand(-1, 3, -1, -1))
    assert edges.density().tolist() == [[1.0] * 3, [0.0] * 3]
    assert all_pairs((2, 1, 2, 3)).to_dense().all()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("shape", "window", "message"),
    [
        ((1, 1, 3, 4), 2, "as many queries as keys, got 3 queries and 4 keys"),
        ((1, 1, 3, 3), -1, "an integer window ≥ 0, got -1"),
        ((1, 1, 3, 3), 1.5, "an integer window ≥ 0, got 1.5"),
        ((1, 1, 3, 3), True, "an integer window ≥ 0, got bool True"),
        ((1, 1, 0, 0), 2, "at least one example, head, query and key"),
    ],
)
def test_impossible_windows_are_refused(shape, window, message):
    with pytest.raises(SbmtError, match=message):
        sliding_window(shape, window)


@pytest.mark.bad_input
def test_a_mask_of_other_length_is_refused():
    with pytest.raises(SbmtError, match=r"key_mask of shape \(1, 3\)"):
        sliding_window((1, 1, 3, 3), 2, None, torch.ones(1, 4, dtype=torch.bool))
